"""What is learned from answers, and what is not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest
from picking import REPLICAS, Picking

from homing.core import responses
from homing.core.session import SessionKey
from homing.ext_proc.events import ResponseHeadersReceived
from homing.ext_proc.learning import RESPONSE, SESSION, at_rank, learn, lesson

ACME = responses.key(b"acme", b"resp_1")
OK = {":status": b"200", "content-type": b"text/event-stream"}
OPENING = b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1","status":'


@dataclass
class FakeMemory:
    said: list[tuple[str, str, SessionKey, str]] = field(default_factory=list)

    def remember(self, pool_id: str, key: SessionKey, replica_id: str) -> None:
        self.said.append(("remember", pool_id, key, replica_id))

    def remember_response(self, pool_id: str, tenant: bytes, response_id: bytes, replica_id: str) -> None:
        self.remember(pool_id, responses.key(tenant, response_id), replica_id)

    def forget(self, pool_id: str, key: SessionKey) -> None:
        self.said.append(("forget", pool_id, key, ""))


@pytest.fixture
def memory() -> FakeMemory:
    return FakeMemory()


def answer(kind: str, headers: dict[str, bytes], tenant: bytes = b"acme") -> ResponseHeadersReceived:
    return ResponseHeadersReceived(headers, lesson(kind, tenant)[1].decode(), "p", "gpu-0")


@pytest.mark.parametrize("size", [1, 7, 64, len(OPENING)])
def test_a_response_is_known_once_its_id_has_come_in_however_many_pieces(memory: FakeMemory, size: int):
    learner = learn(answer(RESPONSE, OK), memory)
    assert learner is not None
    heard = [learner.hear(OPENING[i : i + size]) for i in range(0, len(OPENING), size)]
    assert heard.count(True) >= 1
    assert heard.index(True) == (OPENING.index(b'resp_1"') + 6) // size
    assert memory.said[0] == ("remember", "p", ACME, "gpu-0")


def test_an_answer_without_an_id_is_heard_to_a_bound(memory: FakeMemory):
    learner = learn(answer(RESPONSE, OK), memory)
    assert learner is not None
    piece = json.dumps({"error": {"message": "x" * 6000}}).encode()
    assert [learner.hear(piece) for _ in range(3)] == [False, False, True]
    assert memory.said == []


@pytest.mark.parametrize(
    "changed",
    [
        {"headers": {":status": b"404"}},
        {"headers": {**OK, "content-encoding": b"gzip"}},
        {"headers": {}},
        {"replica": ""},  # a cluster whose endpoints have no hash_key
        {"learn": "response:zz"},
        {"learn": "other:"},
        {"learn": ""},
    ],
)
def test_answers_that_teach_nothing(memory: FakeMemory, changed: dict[str, object]):
    assert learn(replace(answer(RESPONSE, OK), **changed), memory) is None  # type: ignore[arg-type]
    assert memory.said == []


def test_an_engines_new_session_lives_where_it_was_made(memory: FakeMemory):
    headers = {**OK, "x-amzn-sagemaker-new-session-id": b"abc-1; Expires=2026-01-31T12:00:00Z"}
    assert learn(answer(SESSION, headers), memory) is None
    assert memory.said == [("remember", "p", SessionKey(b"acme", b"abc-1", b""), "gpu-0")]


def test_a_session_that_the_engine_closed_is_forgotten(memory: FakeMemory):
    assert learn(answer(SESSION, {**OK, "x-amzn-sagemaker-closed-session-id": b"abc-1"}, b""), memory) is None
    assert memory.said == [("forget", "p", SessionKey(b"", b"abc-1", b""), "")]


@pytest.mark.parametrize("status", [b"400", b"424"])
def test_a_session_that_the_engine_did_not_close_is_kept(memory: FakeMemory, status: bytes):
    headers = {":status": status, "x-amzn-sagemaker-closed-session-id": b"abc-1"}
    assert learn(answer(SESSION, headers), memory) is None
    assert memory.said == []


def test_a_session_of_the_engines_is_asked_for_with_the_clients_tenant():
    picking = Picking(tenant_header="x-tenant")
    told = dict(picking.route(x_homing_learn=b"session", x_tenant=b"acme").set_headers)
    assert told["x-homing-learn"] == b"session:61636d65"
    assert "x-homing-learn" not in dict(picking.route(x_tenant=b"acme").set_headers)


def test_what_was_learned_is_home_for_that_tenant_only():
    picking = Picking(tenant_header="x-tenant")
    headers = {**OK, "x-amzn-sagemaker-new-session-id": b"abc-1; Expires=2026-01-31T12:00:00Z"}
    for replica in REPLICAS:
        picking.picker.learn(replace(answer(SESSION, headers), replica=replica.id))
        told = dict(picking.route(b"abc-1", x_tenant=b"acme").set_headers)
        assert told["x-homing-decision"] == b"home"
        assert told["x-gateway-destination-endpoint"].startswith(replica.address.encode())
    assert dict(picking.route(b"abc-1").set_headers)["x-homing-decision"] == b"hash"
    assert picking.picker.counts.learned == {"p": 3}
    picking.picker.learn(answer(SESSION, {**OK, "x-amzn-sagemaker-closed-session-id": b"abc-1"}))
    assert dict(picking.route(b"abc-1", x_tenant=b"acme").set_headers)["x-homing-decision"] == b"hash"
    assert picking.picker.counts.closed == {"engine": 1}


def test_the_rank_that_was_asked_for_is_learned_with_the_host(memory: FakeMemory):
    ((_, asked),) = at_rank((lesson(SESSION, b"acme"),), 2)
    headers = {":status": b"200", "x-amzn-sagemaker-new-session-id": b"s; Expires=never"}
    learn(ResponseHeadersReceived(headers, asked.decode(), "p", "gpu-0"), memory)
    assert memory.said == [("remember", "p", SessionKey(b"acme", b"s", b""), "gpu-0-2")]
    assert learn(ResponseHeadersReceived(headers, "session:00:x", "p", "gpu-0"), memory) is None
    assert len(memory.said) == 1
