"""What NGINX is told: the exchange's answers as one HTTP reply."""

from __future__ import annotations

import json

import pytest
from picking import FILE, Picking

from homing.core import responses
from homing.core.config import parse
from homing.ext_proc import nginx_log
from homing.ext_proc.decide import Reply, decide
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.nginx_requests import OpenRequests

CHAT = json.dumps({"model": "served", "messages": [{"role": "user", "content": "hello"}]}).encode()


class Asking:
    def __init__(self) -> None:
        self.picking = Picking()
        self.requests = OpenRequests(lambda: Exchange(self.picking.picker), lambda: self.picking.now)

    def ask(self, body: bytes = b"", size: int = len(CHAT), **more: str) -> Reply:
        """`more`: further headers, with _ for -; an empty one is left out, as NGINX does it."""
        headers = {
            "x-homing-request": "r1", "x-homing-pool": "p", "x-homing-model": "served", "x-homing-given": "1",
            "x-homing-path": "/v1/chat/completions", "x-homing-key": "/s", "x-session-id": "s",
            "x-homing-body-bytes": str(size or ""),
        }  # fmt: skip
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        reply = decide(self.requests, {n: v.encode() for n, v in headers.items() if v}, body)
        assert isinstance(reply, Reply)
        return reply


def said(reply: Reply) -> dict[str, str]:
    assert reply.status == 200
    return {name: value.decode() for name, value in reply.headers}


def settings(asking: Asking, text: str) -> None:
    asking.picking.picker.configure(parse(text, "homing.yaml"))


def test_a_known_session_is_decided_by_one_question() -> None:
    asking = Asking()
    told = said(asking.ask())
    assert (told["x-homing-decision"], told["x-homing-replica"]) == ("hash", "gpu-" + told["x-homing-ref"][-1])
    assert sum(asking.picking.in_flight().values()) == 1
    assert asking.requests.close("r1")
    assert sum(asking.picking.in_flight().values()) == 0


def test_the_second_question_is_told_all_of_the_decision() -> None:
    """An alias: the replica is known by the headers, the body is wanted all the same."""
    asking = Asking()
    first = said(asking.ask(x_homing_model="alias"))
    second = asking.ask(CHAT.replace(b"served", b"alias"), x_homing_model="alias")
    assert first["x-homing-body"] == "wanted"
    assert said(second)["x-homing-replica"] == first["x-homing-replica"]
    assert "x-homing-body" not in said(second)
    assert json.loads(second.body)["model"] == "served"


def test_where_the_pool_only_observes_the_hash_decides() -> None:
    asking = Asking()
    settings(asking, FILE.replace("{p: {", "{p: {mode: observe, "))
    told = said(asking.ask())
    assert told["x-homing-decision"] == "hash"
    assert "x-homing-replica" not in told


def test_a_request_that_ended_before_its_question_was_read_holds_no_slot() -> None:
    asking = Asking()
    asking.requests.close("r1")
    assert said(asking.ask())["x-homing-replica"]
    assert sum(asking.picking.in_flight().values()) == 0


def test_a_question_without_an_id_is_wrong() -> None:
    assert (Asking().ask(x_homing_request="")).status == 400


def test_the_size_of_the_request_counts_and_not_that_of_the_question() -> None:
    asking = Asking()
    reply = said(asking.ask(size=0, content_length="5", x_homing_given=""))
    assert "x-homing-replica" not in reply, "no body, no conversation"


def line(**fields: str) -> bytes:
    given = {"request": "r1", "pool": "p", "replica": "gpu-1", "status": 200, "decision": "new", "ref": "",
             "first_byte_s": "0.5", "duration_s": 1.0, "upstream": "10.0.0.1:8000"}  # fmt: skip
    return b"<190>Nov 29 20:00:00 homing: " + json.dumps(given | fields).encode()


def test_a_response_that_the_log_names_is_found() -> None:
    asking = Asking()
    heard = nginx_log.parse(line(learn="response:", learned="resp_1"))
    assert heard is not None
    nginx_log.learn(heard, asking.picking.picker)
    told = said(asking.ask(size=0, x_homing_path="/v1/responses/resp_1", x_homing_pool="", x_homing_model=""))
    assert (told["x-homing-pool"], told["x-homing-replica"], told["x-homing-decision"]) == ("p", "gpu-1", "response")


def test_a_session_that_an_engine_named_goes_to_it_until_the_engine_ends_it() -> None:
    asking = Asking()
    picker = asking.picking.picker
    for session in ("sm-1", "sm-2"):
        for replica in ("gpu-0", "gpu-2"):
            heard = nginx_log.parse(line(learn="session:", new_session=session, replica=replica))
            assert heard is not None
            nginx_log.learn(heard, picker)
            told = said(
                asking.ask(x_session_id=session, x_homing_key=f"/{session}", x_homing_request=replica + session)
            )
            assert (told["x-homing-replica"], told["x-homing-decision"]) == (replica, "home")
    heard = nginx_log.parse(line(learn="session:", closed_session="sm-1", replica="gpu-2"))
    assert heard is not None
    nginx_log.learn(heard, picker)
    assert picker.counts.closed["engine"] == 1


def test_a_line_of_an_older_configuration_is_read() -> None:
    heard = nginx_log.parse(line())
    assert heard is not None
    assert (heard.learn, nginx_log.outcome(heard).ttft_s) == ("", 0.5)


@pytest.mark.parametrize(
    ("upstream", "replica", "served"),
    [("10.0.0.1:1", "gpu-1", "gpu-1"), ("10.0.0.9:1", "", "gpu-2"), ("10.0.0.9:1, 10.0.0.8:1", "", ""), ("", "", "")],
    ids=["known", "a name, once", "a name, twice", "nobody"],
)
def test_who_served_is_known_where_an_address_is_a_name(upstream: str, replica: str, served: str) -> None:
    heard = nginx_log.parse(line(upstream=upstream, replica=replica, ref=f"{'00' * 16}:0:gpu-2"))
    assert heard is not None
    assert nginx_log.outcome(heard).replica_id == served


def test_ids_of_responses_are_told_by_the_path() -> None:
    """The script asks the picker where a request names no model and its path is like this."""
    assert responses.named_by(b"/v1/responses/resp_1/cancel") == b"resp_1"
