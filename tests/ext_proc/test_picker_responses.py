"""Requests to the Responses API: where the response is kept, and nowhere else."""

from __future__ import annotations

import json

import pytest
from picking import FLEET, OTHER, POOL, REPLICAS, Picking, dead

from homing.core import responses
from homing.core.fleet import Fleet
from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
    HeadersAnswer,
    Later,
    Reject,
    RequestBodyReceived,
    RequestHeadersReceived,
    ResponseBodyReceived,
    ResponseHeadersReceived,
)
from homing.ext_proc.exchange import Exchange

PATH = b"/v1/responses"


@pytest.fixture
def picking() -> Picking:
    return Picking(FLEET, tenant_header="x-tenant")


def ask(picking: Picking, *, given: bool = False, tenant: bytes = b"", **body: object) -> Answer | Later:
    """What Envoy is told when the body has come."""
    headers = {":path": PATH, "x-session-id": b"s", "x-homing-key": tenant + b"/s", "x-tenant": tenant}
    headers |= {"x-homing-given": b"1"} if given else {}
    exchange = Exchange(picking.picker)
    assert exchange.receive(RequestHeadersReceived(headers, "served")) == HeadersAnswer((), want_body=True)
    told = exchange.receive(RequestBodyReceived(json.dumps(body).encode()))
    exchange.close()
    return told


def post(picking: Picking, *, given: bool = False, tenant: bytes = b"", **body: object) -> dict[str, bytes]:
    """The headers that Envoy is told."""
    told = ask(picking, given=given, tenant=tenant, **body)
    assert isinstance(told, BodyAnswer)
    return dict(told.set_headers)


def answered(picking: Picking, lesson: bytes, response_id: str, replica_id: str, pool: str = "p") -> None:
    exchange = Exchange(picking.picker)
    exchange.receive(ResponseHeadersReceived({":status": b"200"}, lesson.decode(), pool, replica_id))
    exchange.receive(ResponseBodyReceived(json.dumps({"id": response_id}).encode()))
    assert exchange.over


def visit(picking: Picking, response_id: str, *, cluster: str | None = None, tenant: bytes = b"") -> Answer | Later:
    headers = {":path": PATH + b"/" + response_id.encode(), "x-session-id": b"u", "x-homing-key": tenant + b"/u"}
    headers |= {"x-tenant": tenant}
    return Exchange(picking.picker).receive(RequestHeadersReceived(headers, None, cluster, has_body=False))


def get(picking: Picking, response_id: str, *, cluster: str | None = None, tenant: bytes = b"") -> HeadersAnswer:
    answer = visit(picking, response_id, cluster=cluster, tenant=tenant)
    assert isinstance(answer, HeadersAnswer)
    return answer


def first(told: dict[str, bytes]) -> str:
    return told["x-gateway-destination-endpoint"].decode().split(",")[0]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("replica", REPLICAS)
def test_a_turn_goes_where_the_previous_response_is_kept(picking: Picking, given: bool, replica):
    lesson = post(picking, given=given)["x-homing-learn"]
    answered(picking, lesson, "resp_1", replica.id)
    told = post(picking, given=given, previous_response_id="resp_1")
    assert (first(told), told["x-homing-decision"]) == (replica.address, b"response")
    if given:
        assert "x-session-id" not in told
        assert first(dict(picking.route(b"s").set_headers)) == replica.address, "the session moved along"
    else:
        assert first(dict(picking.route(told["x-session-id"]).set_headers)) == replica.address


def test_a_response_that_is_not_known_changes_nothing(picking: Picking):
    assert post(picking, given=True, previous_response_id="resp_0")["x-homing-decision"] == b"hash"
    assert post(picking, given=True, previous_response_id="resp_0")["x-homing-decision"] == b"home"
    assert post(picking, previous_response_id="resp_0")["x-homing-decision"] == b"new"


def test_a_response_that_is_not_to_be_kept_is_not_asked_for(picking: Picking):
    assert "x-homing-learn" not in post(picking, store=False)
    assert post(picking, tenant=b"acme")["x-homing-learn"] == b"response:61636d65"


def test_a_body_that_is_no_object_is_placed_and_teaches_nothing(picking: Picking):
    headers = {":path": PATH, "x-session-id": b"s", "x-homing-key": b"/s", "x-homing-given": b"1"}
    exchange = Exchange(picking.picker)
    exchange.receive(RequestHeadersReceived(headers, "served"))
    told = exchange.receive(RequestBodyReceived(b"[]"))
    assert isinstance(told, BodyAnswer)
    assert dict(told.set_headers)["x-homing-decision"] == b"hash"
    assert "x-homing-learn" not in dict(told.set_headers)


def test_a_request_by_id_is_told_its_pool_and_routed_anew(picking: Picking):
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-2", "q")
    answer = get(picking, "resp_1")
    told = dict(answer.set_headers)
    assert answer.reroute
    assert (told["x-homing-pool"], first(told)) == (b"q", REPLICAS[2].address)
    assert told["x-gateway-destination-endpoint"].count(b",") == 0, "no other replica has it"
    assert "x-session-id" not in told


def test_a_request_by_an_unknown_id_is_left_to_an_engine(picking: Picking):
    assert get(picking, "resp_0") == HeadersAnswer((("x-homing-pool", b"p"),), reroute=True)
    assert get(picking, "resp_0", cluster="q") == HeadersAnswer((("x-homing-pool", b"q"),), reroute=True)
    picking.picker.adopt(Fleet(()))
    assert get(picking, "resp_0") == HeadersAnswer(())


def test_where_the_route_has_chosen_a_pool_only_that_one_is_looked_at(picking: Picking):
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-2", "q")
    assert "x-gateway-destination-endpoint" not in dict(get(picking, "resp_1", cluster="p").set_headers)


def test_a_response_whose_replica_is_dead_is_asked_for_nowhere_in_particular(picking: Picking):
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-1")
    picking.picker.adopt(dead(picking, "gpu-1"))
    assert "x-gateway-destination-endpoint" not in dict(get(picking, "resp_1").set_headers)
    assert post(picking, previous_response_id="resp_1")["x-homing-decision"] == b"new"


def test_no_tenant_reaches_anothers_response(picking: Picking):
    answered(picking, post(picking, tenant=b"acme")["x-homing-learn"], "resp_1", "gpu-1")
    assert post(picking, tenant=b"acme", previous_response_id="resp_1")["x-homing-decision"] == b"response"
    for tenant in (b"", b"other", b"acme/"):
        refused = Reject(404, "Response with id 'resp_1' not found.")
        assert ask(picking, tenant=tenant, previous_response_id="resp_1") == refused
        assert visit(picking, "resp_1", tenant=tenant) == refused
        assert visit(picking, "resp_1", tenant=tenant, cluster="p") == refused
    assert picking.picker.counts.rejected == {"response": 9}
    assert post(picking, tenant=b"acme", previous_response_id="resp_1")["x-homing-decision"] == b"response"


def test_that_a_response_is_anothers_is_known_as_long_as_it_is(picking: Picking):
    answered(picking, post(picking, tenant=b"acme")["x-homing-learn"], "resp_1", "gpu-1")
    picking.now = 60.0
    get(picking, "resp_1", tenant=b"acme")
    picking.now = 120.0
    assert isinstance(visit(picking, "resp_1", tenant=b"other"), Reject)
    picking.now = 170.0
    assert isinstance(visit(picking, "resp_1", tenant=b"other"), HeadersAnswer), "nobody knows it any more"


def test_a_response_that_two_tenants_have_is_each_ones_own(picking: Picking):
    """Engines let clients choose ids."""
    for tenant, replica in ((b"acme", "gpu-1"), (b"other", "gpu-2")):
        answered(picking, post(picking, tenant=tenant)["x-homing-learn"], "resp_1", replica)
    for tenant in (b"acme", b"other"):
        assert post(picking, tenant=tenant, previous_response_id="resp_1")["x-homing-decision"] == b"response"


def test_where_there_are_no_tenants_a_response_is_known_once():
    picking = Picking(FLEET)
    lesson, before = post(picking)["x-homing-learn"], len(picking.picker.placer.homes)
    answered(picking, lesson, "resp_1", "gpu-1")
    assert len(picking.picker.placer.homes) == before + 1


def test_no_session_reaches_a_response_and_no_response_a_session(picking: Picking):
    """They share one table, and nothing else."""
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-1")
    for session in (b"resp_1", b"responseresp_1"):
        assert dict(picking.route(session).set_headers)["x-homing-decision"] == b"hash"
    picking.route(b"chosen")
    assert "x-gateway-destination-endpoint" not in dict(get(picking, "chosen").set_headers)


def test_an_idle_response_is_forgotten_and_one_in_use_is_not(picking: Picking):
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-1")
    for _ in range(3):
        picking.now += 60
        assert first(dict(get(picking, "resp_1").set_headers)) == REPLICAS[1].address
    picking.now += 101
    assert "x-gateway-destination-endpoint" not in dict(get(picking, "resp_1").set_headers)


def test_a_request_by_id_holds_a_slot_and_moves_nobody(picking: Picking):
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-1")
    exchange = Exchange(picking.picker)
    headers = {":path": PATH + b"/resp_1", "x-session-id": b"u", "x-homing-key": b"/u"}
    exchange.receive(RequestHeadersReceived(headers, None, has_body=False))
    assert picking.in_flight() == {("p", "gpu-1"): 1}
    exchange.close()
    assert picking.in_flight() == {}
    key = responses.key(b"", b"resp_1")
    assert picking.picker.placer.holder(picking.picker.fleet.by_id["p"], key, picking.now) == REPLICAS[1]


def test_pools_do_not_share_responses(picking: Picking):
    assert {POOL.id, OTHER.id} == {"p", "q"}
    answered(picking, post(picking)["x-homing-learn"], "resp_1", "gpu-1", "q")
    assert post(picking, previous_response_id="resp_1")["x-homing-decision"] == b"new"
