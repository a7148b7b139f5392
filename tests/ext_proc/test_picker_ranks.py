"""Data-parallel ranks: replicas of one address, which Envoy knows once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from picking import Picking

from homing.core.fleet import Fleet, HealthChanged, Pool, Replica
from homing.ext_proc.outcomes import Outcome

RANKS = tuple(Replica(f"{host}-{rank}", f"10.0.0.{i}:80", rank=rank) for i, host in enumerate("ab") for rank in (0, 1))
FLEET = Fleet((Pool("p", "served", replicas=RANKS),))


@pytest.fixture
def picking() -> Picking:
    return Picking(FLEET)


def told(picking: Picking, session: bytes, *, given: bool = True) -> tuple[str, str, bytes]:
    """The replica, the addresses, and the id that goes back."""
    headers = dict(picking.route(session, given=given).set_headers)
    replica = headers["x-homing-ref"].decode().rpartition(":")[2]
    assert headers["x-data-parallel-rank"].decode() == replica[-1]
    return replica, headers["x-gateway-destination-endpoint"].decode(), headers.get("x-session-id", session)


def test_the_rank_goes_along_and_the_retry_asks_another_address_for_the_same(picking: Picking):
    for session in (b"s%d" % i for i in range(20)):
        replica, endpoints, _ = told(picking, session)
        assert endpoints == ("10.0.0.0:80,10.0.0.1:80" if replica[0] == "a" else "10.0.0.1:80,10.0.0.0:80")


def test_an_address_that_has_not_the_rank_is_no_second_choice():
    small = Picking(Fleet((Pool("p", "served", replicas=RANKS[:3]),)))
    for session in (b"s%d" % i for i in range(20)):
        replica, endpoints, _ = told(small, session)
        assert ("," in endpoints) == (replica[-1] == "0")


def test_an_engine_of_one_rank_is_asked_for_none():
    plain = Picking()
    assert "x-data-parallel-rank" not in dict(plain.route().set_headers)


def test_ids_are_minted_to_fit_the_rank_so_who_knows_nothing_finds_it(picking: Picking):
    base = b"12345678-1234-1234-1234-123456789abc"
    minted = [(told(picking, base, given=False)) for _ in range(8)]
    assert len({replica for replica, _, _ in minted}) == 4, "new sessions spread over all ranks"
    for replica, endpoints, session in minted:
        assert told(Picking(FLEET), session)[:2] == (replica, endpoints)


def test_outcomes_are_of_the_rank_that_was_asked_for(picking: Picking):
    replica, _, _ = told(picking, b"s")
    host, rank = replica.split("-")
    other = "b" if host == "a" else "a"
    ref = dict(picking.route(b"s").set_headers)["x-homing-ref"].decode()
    served = Outcome("p", host, 200, 0.1, 1.0, 1, "home", ref)
    picking.picker.finished(served)
    assert picking.picker.counts.outcomes == {("p", replica, "2xx"): 1}
    picking.picker.finished(structs.replace(served, replica_id=other, attempts=2))
    assert picking.picker.counts.outcomes["p", f"{other}-{rank}", "2xx"] == 1
    assert picking.picker.counts.rehomed == {"p": 1}
    assert told(picking, b"s")[0] == f"{other}-{rank}"


def test_what_envoy_sent_alone_is_counted_for_the_host_and_goes_with_it(picking: Picking):
    picking.picker.finished(Outcome("p", "a", 200, None, 1.0, 1, "fallback", ""))
    assert picking.picker.counts.outcomes == {("p", "a", "2xx"): 1}
    picking.picker.adopt(Fleet((replace(FLEET.pools[0], replicas=RANKS[2:]),)))
    assert picking.picker.counts.outcomes == {}


def test_a_rank_that_is_lost_alone_sends_its_sessions_where_a_retry_went(picking: Picking):
    replica, endpoints, _ = told(picking, b"s")
    picking.picker.adopt(FLEET.apply(HealthChanged("p", replica, False)))
    moved, now, _ = told(picking, b"s")
    assert moved == f"{'b' if replica[0] == 'a' else 'a'}-{replica[-1]}"
    assert now.split(",")[0] == endpoints.split(",")[1]
