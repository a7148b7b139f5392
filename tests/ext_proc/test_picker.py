"""What a picker makes of headers and bodies. Real placement, a fake clock, no sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from picking import FLEET, OTHER, POOL, REPLICAS, TABLE, Picking, dead, home

from homing.core.config import parse
from homing.core.fleet import Fleet
from homing.ext_proc.events import BodyAnswer, HeadersAnswer, Reject, RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange, Reading, Stage
from homing.ext_proc.picker import Picker


def test_a_given_session_is_told_as_destination_decision_and_ref(picking: Picking):
    headers = dict(picking.route().set_headers)
    assert set(headers) == {"x-gateway-destination-endpoint", "x-homing-decision", "x-homing-ref"}
    first, second = (r.address.encode() for r in list(TABLE.walk(b"/s"))[:2])
    assert headers["x-gateway-destination-endpoint"] == first + b"," + second
    assert headers["x-homing-decision"] == b"hash"
    digest, _, told = headers["x-homing-ref"].decode().split(":")
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
    assert again["x-homing-ref"].split(b":")[0] == headers["x-homing-ref"].split(b":")[0]


def test_a_new_session_of_a_tenant_keeps_the_tenant_in_its_key():
    picking = Picking(tenant_header="x-tenant-id")
    headers = dict(picking.route(b"uuid", given=False, x_tenant_id=b"acme").set_headers)
    assert headers["x-homing-key"] == b"acme/" + headers["x-session-id"]


def test_tenants_do_not_share_a_session():
    picking = Picking(tenant_header="x-tenant-id")
    refs = {dict(picking.route(x_tenant_id=tenant).set_headers)["x-homing-ref"][:32] for tenant in (b"a", b"b")}
    assert len(refs) == 2


def test_without_tenants_the_header_means_nothing(picking: Picking):
    refs = {dict(picking.route(x_tenant_id=tenant).set_headers)["x-homing-ref"][:32] for tenant in (b"a", b"b")}
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


def test_new_settings_of_the_file_hold_from_then_on(picking: Picking):
    pools = "pools: {p: {replicas: [{id: a, address: '127.0.0.1:1'}]}}\n"
    picking.picker.configure(parse(pools + "sessions: {max: 1}\ntenants: {header: x-team, trusted: true}\n", "f"))
    assert picking.picker.identity.tenant_header == "x-team"
    for session in (b"s1", b"s2", b"s3"):
        picking.route(session)
    assert len(picking.picker.placer.homes) == 1
    picking.picker.configure(parse(pools + "tenants: {header: x-team, trusted: false}\n", "f"))
    assert picking.picker.identity.tenant_header is None


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


def test_a_hint_may_name_the_pool_by_another_of_its_names(picking: Picking):
    routed = picking.route(model="alias", x_homing_model=b"alias")
    assert routed.rewrite(b'{"model":"served"}') == BodyAnswer()


def test_the_beginning_of_a_long_id_is_its_key(picking: Picking):
    long = b"x" * 300
    headers = {"x-session-id": long, "x-homing-given": b"1", "x-homing-key": b"acme/" + long[:256]}
    told = dict(picking.picker.route(RequestHeadersReceived(headers, "served")).set_headers)
    owner = TABLE.owner(b"acme/" + long[:256])
    assert owner is not None
    assert told["x-gateway-destination-endpoint"].startswith(owner.address.encode())


OVERLOAD = (
    "pools: {p: {served_name: served, placement: {reject_above_tokens: 1000}, replicas: [{id: a, address: 'h:1'}]}}"
)


@pytest.mark.parametrize("given", [True, False])
def test_where_the_file_asks_for_it_overload_of_all_is_refused_with_a_time_to_come_again(given: bool):
    picking = Picking()
    picking.picker.configure(parse(OVERLOAD, "f"))
    for replica in REPLICAS[1:]:
        picking.picker.placer.load.begin(("p", replica.id), 30_000, 0.0)
    headers = {"x-session-id": b"s", "x-homing-key": b"/s", ":path": b"/v1/chat/completions"}
    headers |= {"x-homing-given": b"1"} if given else {}
    request = RequestHeadersReceived(headers, "served")
    assert isinstance(Exchange(picking.picker).receive(request), HeadersAnswer)
    picking.picker.placer.load.begin(("p", REPLICAS[0].id), 15_500, 0.0)
    answer = Exchange(picking.picker).receive(request)
    assert answer == Reject(429, "Every replica of this model has too much work waiting.", retry_after_s=2)
    assert picking.picker.counts.rejected == {"overload": 1}
    assert isinstance(Exchange(picking.picker).receive(RequestHeadersReceived(headers, "other")), HeadersAnswer)
    picking.now = 3.0
    assert isinstance(Exchange(picking.picker).receive(request), HeadersAnswer)


def test_a_lora_adapter_is_a_model_and_goes_where_it_is_loaded():
    replicas = tuple(replace(r, adapters=("tuned",) if r.id == "gpu-2" else ("other",)) for r in REPLICAS)
    picking = Picking(Fleet((replace(POOL, replicas=replicas), OTHER)))
    for i in range(10):
        routed = picking.route(b"s%d" % i, model="tuned")
        assert not routed.want_body, "vLLM knows the name itself"
        told = dict(routed.set_headers)["x-gateway-destination-endpoint"].split(b",")[0]
        assert told == REPLICAS[2].address.encode()


def test_a_subset_is_kept_to_by_the_choice_and_by_who_is_tried_next(picking: Picking):
    allowed = frozenset((REPLICAS[0].address, REPLICAS[2].address))
    headers = {"x-session-id": b"s", "x-homing-key": b"/s", ":path": b"/v1/chat/completions"}
    for i in range(10):
        named = headers | {"x-session-id": b"s%d" % i, "x-homing-key": b"/s%d" % i, "x-homing-given": b"1"}
        for request in (headers, named):
            routed = picking.picker.route(RequestHeadersReceived(request, "served", subset=allowed))
            assert not isinstance(routed, Reject | Reading)
            told = dict(routed.set_headers)["x-gateway-destination-endpoint"].decode().split(",")
            assert set(told) == allowed


@pytest.mark.parametrize("subset", [frozenset(), frozenset({"10.9.9.9:1"})])
def test_a_subset_without_a_fit_address_is_refused(picking: Picking, subset: frozenset[str]):
    headers = {"x-session-id": b"s", "x-homing-key": b"/s", "x-homing-given": b"1"}
    refused = picking.picker.route(RequestHeadersReceived(headers, "served", subset=subset))
    assert isinstance(refused, Reject)
    assert refused.status == 503
    assert picking.picker.counts.rejected == {"subset": 1}
    assert picking.in_flight() == {}
