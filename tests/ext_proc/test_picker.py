"""What a picker makes of headers, bodies and outcomes. Real placement, a fake clock, no sockets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from homing.core.chains import Chains
from homing.core.config import parse
from homing.core.fleet import Fleet, HealthChanged, Pool, Replica
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.session import Homes
from homing.ext_proc.events import BodyAnswer, HeadersAnswer, Reject, RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange, Stage
from homing.ext_proc.outcomes import Outcome
from homing.ext_proc.picker import Picker, RoutedRequest

REPLICAS = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(3))
POOL = Pool("p", "served", ("alias",), replicas=REPLICAS)
OTHER = Pool("q", "other", replicas=REPLICAS)
FLEET = Fleet((POOL, OTHER))
TABLE = CompiledPool.of(POOL)


class Picking:
    """A picker, what it observed, and requests as Envoy makes them."""

    def __init__(self, fleet: Fleet = FLEET, tenant_header: str | None = None) -> None:
        self.now = 0.0
        self.ttfts: list[tuple[tuple[str, str], float]] = []
        self.forgotten: list[tuple[str, str]] = []
        placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: 0)
        self.picker = Picker(placer, lambda: self.now, self, tenant_header)
        self.picker.adopt(fleet)

    def observe(self, place: tuple[str, str], seconds: float) -> None:
        self.ttfts.append((place, seconds))

    def forget(self, place: tuple[str, str]) -> None:
        self.forgotten.append(place)

    def route(
        self, session: bytes = b"s", model: str | None = "served", *, given: bool = True, **more: bytes
    ) -> RoutedRequest:
        """`more`: further headers, with _ for -."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        tenant = headers.get(self.picker.tenant_header or "", b"")
        headers |= {"x-session-id": session, "x-homing-key": tenant + b"/" + session}
        headers |= {"x-homing-given": session} if given else {}
        return self.picker.route(RequestHeadersReceived(headers, model))

    def in_flight(self) -> dict[tuple[str, str], int]:
        return self.picker.placer.load.snapshot()


@pytest.fixture
def picking() -> Picking:
    return Picking()


def outcome(**fields: object) -> Outcome:
    served = Outcome("p", "gpu-0", 200, 0.5, 1.0, 1, "home", "00" * 16)
    return replace(served, **fields)


def home(session: bytes = b"s") -> Replica:
    owner = TABLE.owner(b"/" + session)
    assert owner is not None
    return owner


def test_a_given_session_is_told_as_destination_decision_and_ref(picking: Picking):
    headers = dict(picking.route().set_headers)
    assert set(headers) == {"x-gateway-destination-endpoint", "x-homing-decision", "x-homing-ref"}
    first, second = (r.address.encode() for r in list(TABLE.walk(b"/s"))[:2])
    assert headers["x-gateway-destination-endpoint"] == first + b"," + second
    assert headers["x-homing-decision"] == b"hash"
    digest, _, told = headers["x-homing-ref"].decode().partition(":")
    assert len(bytes.fromhex(digest)) == 16
    assert told == home().id


def test_a_new_session_gets_an_id_and_the_key_that_envoy_will_make_of_it(picking: Picking):
    headers = dict(picking.route(b"uuid", given=False).set_headers)
    session = headers["x-session-id"]
    assert headers["x-homing-decision"] == b"new"
    assert session.startswith(b"uuid-")
    assert headers["x-homing-key"] == b"/" + session
    assert headers["x-gateway-destination-endpoint"].split(b",")[0] == home(session).address.encode()
    again = dict(picking.route(session).set_headers)
    assert again["x-homing-decision"] == b"home"
    assert again["x-homing-ref"] == headers["x-homing-ref"]


def test_a_new_session_of_a_tenant_keeps_the_tenant_in_its_key():
    picking = Picking(tenant_header="x-tenant-id")
    headers = dict(picking.route(b"uuid", given=False, x_tenant_id=b"acme").set_headers)
    assert headers["x-homing-key"] == b"acme/" + headers["x-session-id"]


def test_tenants_do_not_share_a_session():
    picking = Picking(tenant_header="x-tenant-id")
    refs = {dict(picking.route(x_tenant_id=tenant).set_headers)["x-homing-ref"] for tenant in (b"a", b"b")}
    assert len(refs) == 2


def test_without_tenants_the_header_means_nothing(picking: Picking):
    refs = {dict(picking.route(x_tenant_id=tenant).set_headers)["x-homing-ref"] for tenant in (b"a", b"b")}
    assert len(refs) == 1


@pytest.mark.parametrize("model", ["nope", "", None])
def test_a_model_of_no_pool_is_left_to_envoys_routes(picking: Picking, model: str | None):
    routed = picking.route(model=model)
    assert (routed.set_headers, routed.want_body, picking.in_flight()) == ((), False, {})
    assert picking.picker.counts.decisions == {}
    routed.release()
    assert picking.in_flight() == {}


def test_before_the_first_fleet_nothing_is_decided():
    picking = Picking()
    picking.picker = Picker(picking.picker.placer, lambda: 0.0, lambda *_: None)
    assert picking.picker.version is None
    assert picking.route().set_headers == ()


def test_with_no_living_replica_envoys_panic_decides_and_it_is_counted(picking: Picking):
    for replica in REPLICAS:
        picking.picker.adopt(dead(picking, replica.id))
    routed = picking.route(model="alias")
    assert routed.set_headers == ()
    assert routed.want_body, "an alias is rewritten all the same"
    routed.release()
    assert (picking.in_flight(), picking.picker.counts.decisions) == ({}, {("p", "none"): 1})


def dead(picking: Picking, replica_id: str) -> Fleet:
    pools = tuple(compiled.pool for compiled in picking.picker.fleet.by_id.values())
    return Fleet(pools).apply(HealthChanged("p", replica_id, False))


@pytest.mark.parametrize("given", [True, False])
def test_a_request_without_our_filters_headers_is_not_placed(picking: Picking, given: bool):
    """An Envoy without the session key: every client's id would be made of nothing, and so be the same."""
    routed = picking.route(b"", given=given)
    assert routed.set_headers == ()
    assert (picking.in_flight(), len(picking.picker.placer.homes)) == ({}, 0)
    assert picking.picker.counts.decisions == {("p", "none"): 1}


def test_a_slot_is_held_from_the_decision_to_the_release(picking: Picking):
    one, two = picking.route(), picking.route()
    place = ("p", home().id)
    assert picking.in_flight() == {place: 2}
    one.release()
    assert picking.in_flight() == {place: 1}
    two.release()
    assert picking.in_flight() == {}


def test_a_fleet_that_loses_the_replica_does_not_lose_the_slot(picking: Picking):
    routed = picking.route()
    picking.picker.adopt(Fleet((OTHER,)))
    routed.release()
    assert picking.in_flight() == {}


def test_new_sessions_follow_the_load(picking: Picking):
    begun = [picking.route(b"u%d" % i, given=False) for i in range(6)]
    assert sorted(picking.in_flight().values()) == [2, 2, 2]
    for routed in begun:
        routed.release()


@pytest.mark.parametrize(("model", "wanted"), [("served", False), ("alias", True), ("other", False)])
def test_only_an_alias_needs_the_body(picking: Picking, model: str, wanted: bool):
    assert picking.route(model=model).want_body is wanted


def test_a_request_without_a_model_in_the_only_pool_needs_no_body():
    picking = Picking(Fleet((POOL,)))
    routed = picking.route(model=None)
    assert (routed.want_body, len(routed.set_headers)) == (False, 3)


def test_an_alias_becomes_the_served_name(picking: Picking):
    answer = picking.route(model="alias").rewrite(b'{"model":"alias","n":1.0}')
    assert answer == BodyAnswer(b'{"model":"served","n":1.0}')


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b'{"model":"alias"'])
def test_a_body_that_is_no_object_goes_on_as_it_is(picking: Picking, body: bytes):
    assert picking.route(model="alias").rewrite(body) == BodyAnswer()


def test_a_hint_that_the_body_contradicts_is_refused_and_counted(picking: Picking):
    routed = picking.route(model="alias", x_homing_model=b"alias")
    assert routed.rewrite(b'{"model":"other"}') == Reject(
        400, "The header x-homing-model says alias, the body says other."
    )
    assert picking.picker.counts.rejected == {"hint": 1}
    routed.release()
    assert picking.in_flight() == {}


@pytest.mark.parametrize("body", [b'{"model":"alias"}', b"{}", b'{"model":5}'])
def test_a_hint_that_the_body_does_not_contradict_is_followed(picking: Picking, body: bytes):
    routed = picking.route(model="alias", x_homing_model=b"alias")
    assert routed.rewrite(body) == BodyAnswer(b'{"model":"served"}')


@pytest.mark.parametrize(
    ("session", "header", "kinds"),
    [
        (b"x" * 256, None, {}),
        (b"x" * 257, None, {"long": 1}),
        ("ä".encode(), None, {"non_ascii": 1}),
        (b"\xff" * 300, None, {"long": 1, "non_ascii": 1}),
        (b"s", b"duplicate", {"duplicate": 1}),
        (b"s", b"empty", {"empty": 1}),
    ],
)
def test_odd_ids_are_placed_like_any_other_and_counted(
    picking: Picking, session: bytes, header: bytes | None, kinds: dict[str, int]
):
    routed = picking.route(session, **({"x_homing_odd": header} if header else {}))
    assert dict(routed.set_headers)["x-homing-decision"] == b"hash"
    assert picking.picker.counts.odd_ids == kinds


def test_decisions_are_counted_by_pool_and_reason(picking: Picking):
    picking.route()
    picking.route()
    picking.route(model="other")
    picking.route(given=False)
    assert picking.picker.counts.decisions == {
        ("p", "hash"): 1, ("p", "home"): 1, ("q", "hash"): 1, ("p", "new"): 1,
    }  # fmt: skip


def test_pools_have_sessions_of_their_own(picking: Picking):
    refs = {dict(picking.route(model=model).set_headers)["x-homing-ref"] for model in ("served", "other")}
    assert len(refs) == 2


def test_violations_are_counted_by_stage(picking: Picking):
    picking.picker.violated(Stage.FRESH, RequestBodyReceived(b""))
    picking.picker.violated(Stage.WANTS_BODY, RequestBodyReceived(b""))
    assert picking.picker.counts.violations == {"fresh": 1, "wants_body": 1}


def test_a_picker_routes_for_an_exchange(picking: Picking):
    exchange = Exchange(picking.picker)
    headers = {"x-session-id": b"s", "x-homing-given": b"s", "x-homing-key": b"/s"}
    answer = exchange.receive(RequestHeadersReceived(headers, "alias"))
    assert isinstance(answer, HeadersAnswer)
    assert answer.want_body
    assert exchange.receive(RequestBodyReceived(b'{"model":"alias"}')) == BodyAnswer(b'{"model":"served"}')
    assert sum(picking.in_flight().values()) == 1
    exchange.close()
    assert picking.in_flight() == {}


@pytest.mark.parametrize(("status", "label"), [(200, "2xx"), (404, "4xx"), (503, "5xx"), (0, "0xx")])
def test_an_outcome_is_counted_by_who_served_and_how(picking: Picking, status: int, label: str):
    picking.picker.finished(outcome(status=status))
    assert picking.picker.counts.outcomes == {("p", "gpu-0", label): 1}


def test_outcomes_of_what_envoy_answered_itself_are_not_counted(picking: Picking):
    picking.picker.finished(outcome(pool_id=""))
    picking.picker.finished(outcome(pool_id="gone"))
    assert picking.picker.counts.outcomes == {}
    assert picking.ttfts == []


def test_the_time_to_first_token_is_observed_where_there_is_one(picking: Picking):
    picking.picker.finished(outcome(ttft_s=0.25))
    picking.picker.finished(outcome(ttft_s=None))
    picking.picker.finished(outcome(replica_id="", ttft_s=0.5))
    assert picking.ttfts == [(("p", "gpu-0"), 0.25)]


@pytest.mark.parametrize(("attempts", "retried"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_requests_that_were_retried(picking: Picking, attempts: int, retried: int):
    picking.picker.finished(outcome(attempts=attempts))
    assert picking.picker.counts.retried["p"] == retried


def test_what_envoy_placed_alone_is_counted_and_moves_nobody(picking: Picking):
    ref = dict(picking.route().set_headers)["x-homing-ref"].decode()
    picking.picker.finished(outcome(decision="fallback", ref=ref, replica_id=other_than(home())))
    assert picking.picker.counts.fallbacks == {"p": 1}
    assert picking.picker.counts.rehomed == {}
    assert destination(picking) == home().address


def test_a_session_lives_where_a_retry_was_served(picking: Picking):
    ref = dict(picking.route().set_headers)["x-homing-ref"].decode()
    elsewhere = other_than(home())
    picking.picker.finished(outcome(replica_id=elsewhere, attempts=2, ref=ref))
    assert picking.picker.counts.rehomed == {"p": 1}
    assert destination(picking) == next(r.address for r in REPLICAS if r.id == elsewhere)


@pytest.mark.parametrize("ref", ["", "not hexadecimal", "00", "é" * 32, "ff" * 16])
def test_a_ref_that_is_not_ours_moves_nobody(picking: Picking, ref: str):
    picking.route()
    picking.picker.finished(outcome(replica_id=other_than(home()), ref=ref))
    assert picking.picker.counts.rehomed == {}
    assert destination(picking) == home().address


def test_the_late_outcome_of_a_long_answer_does_not_bring_a_session_back(picking: Picking):
    """It was told of one home, and moved while that answer was still on its way."""
    first = dict(picking.route().set_headers)["x-homing-ref"].decode()
    elsewhere = other_than(home())
    picking.picker.finished(outcome(replica_id=elsewhere, ref=first))
    third = next(r.id for r in REPLICAS if r.id not in (home().id, elsewhere))
    picking.picker.finished(outcome(replica_id=third, ref=first))
    assert destination(picking) == next(r.address for r in REPLICAS if r.id == elsewhere)


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_failure_moves_nobody(picking: Picking, status: int):
    """Where every replica failed, the last one that was tried is no home."""
    ref = dict(picking.route().set_headers)["x-homing-ref"].decode()
    picking.picker.finished(outcome(replica_id=other_than(home()), status=status, attempts=3, ref=ref))
    assert destination(picking) == home().address


def test_a_replica_that_is_gone_leaves_the_metrics(picking: Picking):
    for replica in REPLICAS:
        picking.picker.finished(outcome(replica_id=replica.id))
    picking.picker.adopt(Fleet((replace(POOL, replicas=REPLICAS[1:]), OTHER)))
    assert picking.forgotten == [("p", "gpu-0")]
    assert picking.picker.counts.outcomes == {("p", "gpu-1", "2xx"): 1, ("p", "gpu-2", "2xx"): 1}


def test_new_settings_of_the_file_hold_from_then_on(picking: Picking):
    pools = "pools: {p: {replicas: [{id: a, address: '127.0.0.1:1'}]}}\n"
    picking.picker.configure(parse(pools + "sessions: {max: 1}\ntenants: {header: x-team, trusted: true}\n", "f"))
    assert picking.picker.tenant_header == "x-team"
    for session in (b"s1", b"s2", b"s3"):
        picking.route(session)
    assert len(picking.picker.placer.homes) == 1
    picking.picker.configure(parse(pools + "tenants: {header: x-team, trusted: false}\n", "f"))
    assert picking.picker.tenant_header is None


def other_than(replica: Replica) -> str:
    return next(r.id for r in REPLICAS if r.id != replica.id)


def destination(picking: Picking) -> str:
    return dict(picking.route().set_headers)["x-gateway-destination-endpoint"].decode().split(",")[0]


def test_an_adopted_fleet_is_named_by_its_version(picking: Picking):
    assert picking.picker.version == FLEET.version
    changed = dead(picking, "gpu-0")
    picking.picker.adopt(changed)
    assert picking.picker.version == changed.version
    assert picking.picker.fleet.by_id["p"].member("gpu-0") is None


def test_a_request_without_a_body_begins_no_session(picking: Picking) -> None:
    """A load balancer's probe each second would fill the table of homes."""
    headers = {"x-session-id": b"minted-by-envoy", "x-homing-key": b"/minted-by-envoy"}
    routed = picking.picker.route(RequestHeadersReceived(headers, None, has_body=False))
    assert routed.set_headers == ()
    assert len(picking.picker.placer.homes) == 0


def test_a_request_without_a_body_goes_home_with_its_session(picking: Picking) -> None:
    headers = {"x-session-id": b"s", "x-homing-key": b"/s", "x-homing-given": b"s"}
    routed = picking.picker.route(RequestHeadersReceived(headers, "served", has_body=False))
    assert dict(routed.set_headers)["x-gateway-destination-endpoint"].startswith(home().address.encode())


def closing(picking: Picking, model: str | None, session: bytes = b"s") -> RoutedRequest:
    return picking.route(session, model, x_session_close=b"True")


def known(picking: Picking) -> int:
    return len(picking.picker.placer.homes)


def test_a_session_is_closed_when_its_last_turn_has_ended(picking: Picking):
    picking.route()
    last = closing(picking, "served")
    assert dict(last.set_headers)["x-homing-decision"] == b"home"
    assert known(picking) == 1
    last.release()
    assert known(picking) == 0
    assert picking.picker.counts.closed == {"client": 1}


def test_a_close_without_a_pool_forgets_the_session_in_all(picking: Picking):
    for model in ("served", "other"):
        picking.route(model=model)
    picking.route(b"another")
    closing(picking, None).release()
    assert known(picking) == 1
    closing(picking, None).release()
    assert picking.picker.counts.closed == {"client": 1}


def test_nobody_closes_another_tenants_session():
    picking = Picking(tenant_header="x-tenant-id")
    picking.route(x_tenant_id=b"a")
    picking.route(model=None, x_tenant_id=b"b", x_session_close=b"true").release()
    assert known(picking) == 1


@pytest.mark.parametrize("value", [b"", b"false", b"1", b"yes"])
def test_only_true_closes(picking: Picking, value: bytes):
    picking.route()
    picking.route(x_session_close=value).release()
    assert known(picking) == 1


CHAT = b"/v1/chat/completions"
FILE = "pools: {p: {replicas: [{id: a, address: '127.0.0.1:1'}]}}\n"


@pytest.fixture
def recognising() -> Picking:
    """As production is configured, over another tie-breaker: always the last of the cheapest."""
    picking = Picking()
    placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: n - 1)
    picking.picker = Picker(placer, lambda: picking.now, picking)
    picking.picker.configure(parse(FILE, "f"))
    picking.picker.adopt(FLEET)
    return picking


def unnamed(
    picking: Picking, body: bytes, model: str = "served", path: bytes = CHAT, **more: bytes
) -> dict[str, bytes]:
    """The headers that Envoy is told once the body of a request without a session is there."""
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": path, **more}
    exchange = Exchange(picking.picker)
    answer = exchange.receive(RequestHeadersReceived(headers, model))
    assert answer == HeadersAnswer((), want_body=True)
    told = exchange.receive(RequestBodyReceived(body))
    assert isinstance(told, BodyAnswer)
    exchange.close()
    return dict(told.set_headers)


def talk(*texts: str) -> bytes:
    roles = ("user", "assistant")
    return json.dumps({"messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]}).encode()


def test_a_conversation_without_an_id_comes_home(recognising: Picking):
    first = unnamed(recognising, talk("u1"))
    assert first["x-homing-decision"] == b"new"
    home = first["x-gateway-destination-endpoint"].split(b",")[0]
    texts = ["u1"]
    for turn in range(20):
        texts += [f"a{turn}", f"u{turn}"]
        told = unnamed(recognising, talk(*texts))
        assert told["x-homing-decision"] == b"history"
        assert told["x-gateway-destination-endpoint"].split(b",")[0] == home
    assert recognising.picker.counts.keyless == {"first": 1, "found": 20}
    assert recognising.in_flight() == {}


def test_the_id_it_gets_back_leads_home_too(recognising: Picking):
    unnamed(recognising, talk("u1"))
    told = unnamed(recognising, talk("u1", "a1", "u2"))
    given = dict(recognising.route(told["x-session-id"]).set_headers)
    assert given["x-gateway-destination-endpoint"] == told["x-gateway-destination-endpoint"]


def test_turns_without_an_id_do_not_fill_the_table_of_homes(recognising: Picking):
    unnamed(recognising, talk("u1"))
    for _ in range(5):
        unnamed(recognising, talk("u1", "a1", "u2"))
    assert known(recognising) == 1


def test_identical_first_messages_are_spread_by_load(recognising: Picking):
    exchanges = []
    for _ in range(30):
        exchange = Exchange(recognising.picker)
        headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": CHAT}
        exchange.receive(RequestHeadersReceived(headers, "served"))
        exchange.receive(RequestBodyReceived(talk("hello")))
        exchanges.append(exchange)
    assert set(recognising.in_flight().values()) == {10}
    for exchange in exchanges:
        exchange.close()
    assert recognising.in_flight() == {}


def test_a_home_that_is_dead_is_left(recognising: Picking):
    first = unnamed(recognising, talk("u1"))["x-gateway-destination-endpoint"].split(b",")[0].decode()
    dead = next(r.id for r in REPLICAS if r.address == first)
    recognising.picker.adopt(FLEET.apply(HealthChanged("p", dead, healthy=False)))
    told = unnamed(recognising, talk("u1", "a1", "u2"))
    assert told["x-homing-decision"] == b"new"
    assert told["x-gateway-destination-endpoint"].split(b",")[0].decode() != first


def test_a_member_of_the_body_names_the_session(recognising: Picking):
    body = json.dumps({"messages": [], "session_id": "mine"}).encode()
    first, second = unnamed(recognising, body), unnamed(recognising, body)
    assert (first["x-homing-decision"], second["x-homing-decision"]) == (b"hash", b"home")
    assert first["x-session-id"] == b"mine"
    assert first["x-homing-key"] == b"/mine"
    assert dict(recognising.route(b"mine").set_headers)["x-homing-decision"] == b"home"


def test_a_hint_may_name_the_pool_by_another_of_its_names(picking: Picking):
    routed = picking.route(model="alias", x_homing_model=b"alias")
    assert routed.rewrite(b'{"model":"served"}') == BodyAnswer(b'{"model":"served"}')


def test_the_beginning_of_a_long_id_is_its_key(picking: Picking):
    long = b"x" * 300
    headers = {"x-session-id": long, "x-homing-given": b"1", "x-homing-key": b"acme/" + long[:256]}
    told = dict(picking.picker.route(RequestHeadersReceived(headers, "served")).set_headers)
    owner = TABLE.owner(b"acme/" + long[:256])
    assert owner is not None
    assert told["x-gateway-destination-endpoint"].startswith(owner.address.encode())


def test_an_alias_is_rewritten_and_the_conversation_placed_in_one_answer(recognising: Picking):
    exchange = Exchange(recognising.picker)
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": CHAT}
    exchange.receive(RequestHeadersReceived(headers, "alias"))
    answer = exchange.receive(RequestBodyReceived(b'{"model":"alias","messages":[]}'))
    assert isinstance(answer, BodyAnswer)
    assert answer.body == b'{"model":"served","messages":[]}'
    assert dict(answer.set_headers)["x-homing-decision"] == b"new"


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"messages":3}'])
def test_a_body_without_a_conversation_is_a_new_session(recognising: Picking, body: bytes):
    assert unnamed(recognising, body)["x-homing-decision"] == b"new"


@pytest.mark.parametrize(
    ("path", "has_body", "history"),
    [(b"/v1/embeddings", True, True), (CHAT, False, True), (CHAT, True, False), (b"/tokenize", True, True)],
)
def test_bodies_without_a_conversation_are_not_asked_for(
    recognising: Picking, path: bytes, has_body: bool, history: bool
):
    recognising.picker.configure(parse(FILE + f"sessions: {{history: {str(history).lower()}}}\n", "f"))
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": path}
    routed = recognising.picker.route(RequestHeadersReceived(headers, "served", has_body=has_body))
    assert not routed.want_body


def test_a_client_that_leaves_before_its_body_came_holds_no_slot(recognising: Picking):
    exchange = Exchange(recognising.picker)
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": CHAT}
    exchange.receive(RequestHeadersReceived(headers, "served"))
    exchange.close()
    assert recognising.in_flight() == {}
