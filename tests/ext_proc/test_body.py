"""What a picker does to bodies, by the file and the record of the pool's template."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from homing.core.chains import Chains
from homing.core.config import parse
from homing.core.fleet import Fleet, Pool, Replica
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.session import Homes, SessionKey
from homing.core.template.record import Capabilities, Fate
from homing.ext_proc.events import BodyAnswer, Reject, RequestHeadersReceived
from homing.ext_proc.exchange import Reading
from homing.ext_proc.picker import Picker
from homing.ext_proc.proof import Offer
from homing.ext_proc.routed import RoutedRequest

NO_SYSTEM = Capabilities(system=Fate.REFUSED, later_system=Fate.REFUSED)
CLEAN = Capabilities()
SYSTEM = {"role": "system", "content": "Be kind to everybody who asks."}
USER = {"role": "user", "content": "hello, who is there on the other side?"}
ANSWER = {"role": "assistant", "content": "Me."}


class Nowhere:
    def observe(self, place: object, seconds: float) -> None: ...

    def forget(self, place: object) -> None: ...


class Picking:
    def __init__(self, record: Capabilities | None = NO_SYSTEM, **settings: object) -> None:
        self.now = 0.0
        replicas = [{"id": "r", "address": "10.0.0.1:8000"}]
        pools = {"p": {"served_name": "served", "aliases": ["alias"], "replicas": replicas, **settings}}
        file = {"tenants": {"header": "x-tenant", "trusted": True}, "pools": pools}
        placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: 0)
        self.chance = 1.0
        self.picker = Picker(placer, lambda: self.now, Nowhere(), chance=lambda: self.chance)
        self.picker.configure(parse(json.dumps(file), "f"))
        self.picker.adopt(Fleet((Pool("p", "served", ("alias",), "ring", (Replica("r", "10.0.0.1:8000"),), record),)))

    def route(
        self, session: bytes | None = b"s", path: bytes = b"/v1/chat/completions", model: str = "served", **more: bytes
    ) -> RoutedRequest:
        headers = {":path": path, "x-session-id": session or b"uuid", "x-homing-key": b"/" + (session or b"uuid")}
        headers |= {"x-homing-given": b"1"} if session else {}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        return self.picker.route(RequestHeadersReceived(headers, model))

    def send(self, *messages: object, session: bytes | None = b"s", **members: object) -> tuple[object, dict[str, str]]:
        """The messages that arrive, and the headers that are set."""
        body = json.dumps({"model": "served", "messages": messages, **members}).encode()
        answer = self.route(session).rewrite(body)
        assert isinstance(answer, BodyAnswer)
        sent = json.loads(answer.body or body)["messages"]
        return sent, {name: value.decode() for name, value in answer.set_headers}


def folded(*rest: object) -> list[object]:
    return [{**USER, "content": f"{SYSTEM['content']}\n\n{USER['content']}"}, *rest]


def test_a_repair_is_made_named_and_counted():
    picking = Picking()
    assert picking.route().want_body
    assert picking.send(SYSTEM, USER) == (folded(), {"x-homing-repairs": "fold_system"})
    assert picking.picker.counts.repairs == {("p", "fold_system"): 1}


def test_without_a_session_it_is_placed_and_repaired_alike():
    sent, headers = Picking().send(SYSTEM, USER, session=None)
    assert sent == folded()
    assert headers["x-homing-repairs"] == "fold_system"
    assert headers["x-homing-decision"] == "new"


def test_what_needs_nothing_leaves_byte_for_byte():
    answer = Picking().route().rewrite(b'{ "messages" : [ {"role":"user", "content":"x"} ] }')
    assert answer == BodyAnswer()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"messages":5}', b'{"messages":[{"role":5}]}', b'{"prompt":"x"}', b"\xff"]
)
def test_what_is_malformed_goes_to_the_engine_as_it_came(body: bytes):
    assert Picking(context={"max_tokens": 1}, repair={"lost_system": "restore"}).route().rewrite(body) == BodyAnswer()


def test_other_members_keep_their_bytes():
    body = (
        b'{"temperature": 0.10, "messages": [{"role":"system","content":"a"},{"role":"user","content":"b"}], "n":1e0}'
    )
    answer = Picking().route().rewrite(body)
    assert isinstance(answer, BodyAnswer)
    assert answer.body == b'{"temperature":0.10,"messages":[{"role":"user","content":"a\\n\\nb"}],"n":1e0}'


@pytest.mark.parametrize("path", [b"/v1/embeddings", b"/v1/models", b"/v1/completions"])
def test_only_conversations_are_read(path: bytes):
    assert not Picking(context={"max_tokens": 5}).route(path=path).want_body


def test_a_clean_template_an_unknown_one_and_a_pool_outside_of_the_file_ask_for_nothing():
    assert not Picking(CLEAN).route().want_body
    assert not Picking(None).route().want_body
    picking = Picking()
    picking.picker.adopt(
        Fleet((Pool("other", "served", replicas=(Replica("r", "10.0.0.1:8000"),), template=NO_SYSTEM),))
    )
    assert not picking.route().want_body


def test_a_template_that_is_probed_later_counts_from_then_on():
    picking = Picking(None)
    assert not picking.route().want_body
    picking.picker.adopt(Fleet((Pool("p", "served", replicas=(Replica("r", "10.0.0.1:8000"),), template=NO_SYSTEM),)))
    assert picking.route().want_body


def test_alias_repair_and_salt_are_one_body():
    picking = Picking(isolation={"cache_salt": "tenant"})
    body = json.dumps({"model": "alias", "messages": [SYSTEM, USER], "cache_salt": "mine"}).encode()
    salts = []
    for tenant in (b"acme", b"acme", b"other"):
        answer = picking.route(model="alias", x_tenant=tenant).rewrite(body)
        assert isinstance(answer, BodyAnswer)
        sent = json.loads(answer.body or b"")
        assert (sent["model"], sent["messages"]) == ("served", folded())
        salts.append(sent["cache_salt"])
    assert salts[0] == salts[1] != salts[2]


@pytest.mark.parametrize("mode", ["off", "observe", "route", "full"])
def test_isolation_holds_in_every_mode_and_for_every_path(mode: str):
    picking = Picking(CLEAN, mode=mode, isolation={"cache_salt": "tenant"})
    routed = picking.route(path=b"/v1/completions")
    assert routed.want_body
    answer = routed.rewrite(b'{"prompt":"x"}')
    assert isinstance(answer, BodyAnswer)
    assert len(json.loads(answer.body or b"")["cache_salt"]) == 32


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ('{"prompt":"x","cache_salt":"mine"}'.encode("utf-16"), True),
        (b'\xef\xbb\xbf{"prompt":"x","cache_salt":"mine"}', True),
        (b'{"prompt":"x","cache_salt":"mine","temperature":NaN}', True),
        (b'{"prompt":"x","cache_salt":"mine","\\ud800":1}', True),
        (b'{"prompt":%s1%s}' % (b"[" * 200_000, b"]" * 200_000), True),
        (b'{"prompt":"x"', False),
        (b"--boundary\r\ncontent-disposition: form-data\r\n\r\nx\r\n", False),
        (b"[NaN]", False),
    ],
    ids=["utf-16", "a mark of the byte order", "NaN", "half a surrogate pair", "deep", "cut off", "a form", "a list"],
)
def test_what_only_an_engine_may_read_is_refused_where_it_would_go_without_a_salt(body: bytes, taken: bool):
    picking = Picking(CLEAN, isolation={"cache_salt": "tenant"})
    answer = picking.route(path=b"/v1/completions").rewrite(body)
    assert isinstance(answer, Reject) == taken
    assert (answer.status if isinstance(answer, Reject) else answer.body) == (400 if taken else None)
    assert picking.picker.counts.rejected == ({"isolation": 1} if taken else {})
    assert Picking(CLEAN, context={"max_tokens": 1}).route().rewrite(body) == BodyAnswer()


def test_observe_finds_everything_out_and_changes_nothing():
    picking = Picking(mode="observe", context={"max_tokens": 1})
    routed = picking.route()
    assert {name for name, _ in routed.set_headers} == {"x-homing-decision", "x-homing-ref"}
    answer = routed.rewrite(json.dumps({"messages": [SYSTEM, USER]}).encode())
    assert answer == BodyAnswer(None, (("x-homing-repairs", b"observed:fold_system"),))
    assert picking.picker.counts.repairs == {}
    assert picking.picker.counts.observed_repairs == {("p", "fold_system"): 1}
    assert picking.picker.counts.decisions == {("p", "hash"): 1}


def test_route_and_off_repair_nothing_and_off_places_nobody():
    assert not Picking(mode="route").route().want_body
    assert "x-gateway-destination-endpoint" in dict(Picking(mode="route").route().set_headers)
    off = Picking(mode="off").route(None)
    assert (off.want_body, off.set_headers) == (False, ())


def test_percent_is_of_conversations_the_same_in_every_turn_with_an_id_and_without():
    picking = Picking(repair={"percent": 30})
    repaired = 0
    for i in range(200):
        first = {"role": "user", "content": f"question {i}"}
        changed = {**SYSTEM, "content": f"It is {i} o'clock."}
        turns = [(SYSTEM, first), (changed, first, ANSWER, USER), (SYSTEM, first, ANSWER, changed, USER, ANSWER, USER)]
        done = [
            picking.send(*turn, session=session)[1].get("x-homing-repairs")
            for turn in turns
            for session in (b"s", None)
        ]
        assert len(set(done)) == 1
        repaired += done[0] is not None
    assert 40 < repaired < 80


def test_a_conversation_that_is_too_long_is_refused():
    picking = Picking(CLEAN, context={"max_tokens": 100})
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 900}], "max_tokens": 5}).encode()
    answer = picking.route().rewrite(body)
    assert isinstance(answer, Reject)
    assert answer.status == 400
    assert "100 tokens" in answer.message
    assert "at least 17 too many" in answer.message
    assert picking.picker.counts.rejected == {"context_length": 1}


def test_the_engines_own_limit_counts_once_it_is_known():
    picking = Picking(CLEAN, context={"max_tokens": "auto"})
    long = json.dumps({"model": "served", "messages": [{"role": "user", "content": "x" * 1000}]}).encode()
    assert not picking.route().want_body
    for length, refused in ((100, True), (200, False)):
        pool = picking.picker.fleet.by_id["p"].pool
        picking.picker.adopt(Fleet((replace(pool, max_model_len=length),)))
        routed = picking.route()
        assert routed.want_body
        assert isinstance(routed.rewrite(long), Reject) == refused


def test_or_trimmed():
    picking = Picking(CLEAN, context={"max_tokens": 100, "over": "trim"})
    old = {"role": "user", "content": "x" * 300}
    sent, headers = picking.send(SYSTEM, old, ANSWER, USER)
    assert (sent, headers) == ([SYSTEM, USER], {"x-homing-repairs": "trim"})


def test_a_text_that_becomes_part_of_a_question_does_not_go_with_it():
    picking = Picking(context={"max_tokens": 50, "over": "trim"})
    question = {"role": "user", "content": "x" * 60}
    sent, headers = picking.send(SYSTEM, question, ANSWER, question, ANSWER, USER)
    assert (sent, headers["x-homing-repairs"]) == (folded(), "trim,fold_system")


def test_what_is_too_long_even_when_it_is_trimmed_is_refused():
    picking = Picking(CLEAN, context={"max_tokens": 50, "over": "trim"})
    body = json.dumps({"messages": [USER, ANSWER, {"role": "user", "content": "x" * 500}]}).encode()
    assert isinstance(picking.route().rewrite(body), Reject)


def test_a_lost_system_text_is_put_back():
    picking = Picking(CLEAN, repair={"lost_system": "restore"})
    picking.send(SYSTEM, USER)
    sent, headers = picking.send(USER, ANSWER, USER)
    assert (sent, headers) == ([SYSTEM, USER, ANSWER, USER], {"x-homing-repairs": "restore_system"})
    assert picking.picker.counts.system_texts == {("p", "new"): 1, ("p", "restored"): 1}


def test_and_folded_where_there_is_no_system_role():
    picking = Picking(repair={"lost_system": "restore"})
    picking.send(SYSTEM, USER)
    sent, headers = picking.send(USER, ANSWER, USER)
    assert (sent, headers["x-homing-repairs"]) == (folded(ANSWER, USER), "restore_system,fold_system")


def test_or_only_reported():
    for settings in ({"repair": {"lost_system": "report"}}, {"mode": "observe", "repair": {"lost_system": "restore"}}):
        picking = Picking(CLEAN, **settings)
        picking.send(SYSTEM, USER)
        assert picking.send(USER, ANSWER, USER)[0] == [USER, ANSWER, USER]
        assert picking.picker.counts.system_texts == {("p", "new"): 1, ("p", "lost"): 1}


def test_sessions_of_others_and_conversations_without_an_id_get_nothing_back():
    picking = Picking(CLEAN, repair={"lost_system": "restore"})
    picking.send(SYSTEM, USER)
    for session in (b"other", None):
        assert picking.send(USER, ANSWER, USER, session=session)[0] == [USER, ANSWER, USER]


def by_client(picking: Picking) -> None:
    picking.route(b"s", x_session_close=b"true").release()


def by_api(picking: Picking) -> None:
    picker = picking.picker
    picker.placing.close(
        picker.fleet.by_id.values(), picker.identity.key({"x-session-id": b"s", "x-homing-key": b"/s"}), "api"
    )


def by_engine(picking: Picking) -> None:
    picking.picker.placing.forget("p", SessionKey(b"", b"s", b""))


@pytest.mark.parametrize("end", [by_client, by_api, by_engine])
def test_a_session_that_has_ended_gets_nothing_back(end: Callable[[Picking], None]):
    picking = Picking(CLEAN, repair={"lost_system": "restore"})
    picking.send(SYSTEM, USER)
    end(picking)
    assert picking.send(USER, ANSWER, USER)[0] == [USER, ANSWER, USER]


def test_a_sample_is_of_sessions():
    picking = Picking(CLEAN, repair={"lost_system": "sample"})
    for i in range(400):
        picking.send(SYSTEM, USER, session=b"%d" % i)
    assert 10 < picking.picker.counts.system_texts["p", "new"] < 45


def offered(picking: Picking) -> list[Offer]:
    return list(picking.picker.proof._waiting)


def test_a_repaired_request_is_offered_for_proof_once_it_has_ended():
    picking = Picking()
    body = json.dumps({"messages": [SYSTEM, USER]}).encode()
    request = picking.route()
    answer = request.rewrite(body)
    assert isinstance(answer, BodyAnswer)
    assert offered(picking) == []
    request.release()
    (offer,) = offered(picking)
    assert (offer.said, offer.sent, offer.path, offer.repaired) == (body, answer.body, b"/v1/chat/completions", True)


def test_what_only_would_be_repaired_is_not_and_what_needs_no_repair_only_in_the_sample():
    body = json.dumps({"messages": [SYSTEM, USER]}).encode()
    for picking, chance, count in [
        (Picking(mode="observe"), 1.0, 0),
        (Picking(CLEAN), 1.0, 0),
        (Picking(CLEAN), 0.0, 1),
    ]:
        picking.chance = chance
        request = picking.route(session=None)  # read to recognise the conversation
        request.rewrite(body)
        request.release()
        assert [offer.repaired for offer in offered(picking)] == [False] * count


LOST = {"lost_system": "report"}


@pytest.mark.parametrize(
    ("record", "settings", "in_sample", "read"),
    [
        (CLEAN, {}, True, False),
        (None, {}, True, False),
        (CLEAN, {"proof": {"sample": 0.5}}, True, False),
        (CLEAN, {"proof": {"sample": 0.5, "ask": True}}, True, True),
        (CLEAN, {"proof": {"sample": 0.5, "ask": True}}, False, False),
        (CLEAN, {"proof": {"sample": 0, "ask": True}}, True, False),
        (CLEAN, {"proof": {"sample": 1, "ask": True}, "mode": "off"}, True, False),
        (NO_SYSTEM, {}, False, True),
        (NO_SYSTEM, {"repair": {"system": "off"}}, False, False),
        (NO_SYSTEM, {"repair": {"percent": 0}}, False, False),
        (NO_SYSTEM, {"mode": "route"}, False, False),
        (NO_SYSTEM, {"mode": "observe"}, False, True),
        (Capabilities(developer=Fate.DROPPED), {}, False, True),
        (Capabilities(developer=Fate.DROPPED), {"repair": {"developer": "off"}}, False, False),
        (Capabilities(trims=True, dated=True, stable=False, default_system=True), {}, False, False),
        (CLEAN, {"repair": LOST}, False, True),
        (CLEAN, {"context": {"max_tokens": 1000}}, False, True),
        (CLEAN, {"isolation": {"cache_salt": "tenant"}}, False, True),
    ],
)
def test_which_settings_cost_the_reading_of_a_body(
    record: Capabilities | None, settings: dict[str, object], in_sample: bool, read: bool
):
    """Of a conversation that names its session and a model by its served name."""
    picking = Picking(record, **settings)
    picking.chance = 0.0 if in_sample else 0.99
    assert picking.route().want_body is read


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/responses"])
@pytest.mark.parametrize("in_body", [False, True])
async def test_a_session_that_another_picker_knows_is_read_before_it_is_judged(path: bytes, in_body: bool):
    knowing, taking_over = (Picking(CLEAN, repair={"lost_system": "restore"}) for _ in range(2))
    session, turns = None if in_body else b"s", "input" if path.endswith(b"responses") else "messages"
    named = {"session_id": "s"} if in_body else {}

    def sent(picking: Picking, *said: object) -> object:
        return picking.route(session, path).rewrite(json.dumps({turns: said, **named}).encode())

    assert isinstance(sent(knowing, SYSTEM, USER), BodyAnswer)

    def first_sight(digest: bytes) -> Awaitable[object]:
        async def read() -> None:
            bodies = taking_over.picker.bodies
            bodies.sessions.absorb(digest, knowing.picker.bodies.sessions.get(digest, 0.0), 0.0)

        return read()

    taking_over.picker.bodies.first_sight = first_sight
    reading = sent(taking_over, USER, ANSWER, USER)
    assert isinstance(reading, Reading)
    await reading.wait
    answer = reading.resume()
    assert isinstance(answer, BodyAnswer)
    assert json.loads(answer.body or b"")[turns] == [SYSTEM, USER, ANSWER, USER]
    assert isinstance(sent(taking_over, USER, ANSWER, USER), BodyAnswer), "asked once"
