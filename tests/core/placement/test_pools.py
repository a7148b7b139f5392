"""The fleet compiled: models to pools, pools to the table that Envoy has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from homing.core.fleet import Fleet, HealthChanged, Pool, Replica, State
from homing.core.hashing import Maglev, Ring
from homing.core.placement.pools import EMPTY, CompiledFleet, CompiledPool

REPLICAS = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(4))
POOL = Pool("p", "model-p", ("alias", "other"), replicas=REPLICAS)
OTHER = Pool("q", "model-q", replicas=REPLICAS)
KEYS = [b"/s%d" % i for i in range(500)]


def with_first(**changes: object) -> Pool:
    return replace(POOL, replicas=(replace(REPLICAS[0], **changes), *REPLICAS[1:]))


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        ({}, True),
        ({"state": State.DRAINING}, True),
        ({"healthy": False}, False),
        ({"state": State.JOINING, "healthy": False}, False),
    ],
)
def test_members_are_those_in_envoys_table(changes: dict[str, object], member: bool):
    compiled = CompiledPool.of(with_first(**changes))
    assert (compiled.member("gpu-0") is not None) == member
    assert {r.id for r in compiled.walk(b"key")} == {r.id for r in compiled.members}
    assert len(compiled.members) == 3 + member


def test_the_rings_size_follows_membership_not_health():
    compiled = CompiledPool.of(with_first(healthy=False))
    envoys = Ring([(r.id, 1) for r in REPLICAS[1:]], 400)
    assert [compiled.owner(key) for key in KEYS] == [REPLICAS[1:][envoys.owner(key) or 0] for key in KEYS]


def test_weights_and_maglev_reach_the_table():
    weighted = replace(POOL, replicas=tuple(replace(r, weight=i + 1) for i, r in enumerate(REPLICAS)))
    hosts = [(r.id, r.weight) for r in weighted.replicas]
    for kind, envoys in (("ring", Ring(hosts, 1000)), ("maglev", Maglev(hosts))):
        compiled = CompiledPool.of(replace(weighted, hash=kind))
        assert [compiled.owner(key) for key in KEYS] == [weighted.replicas[envoys.owner(key) or 0] for key in KEYS]


def test_a_pool_without_living_replicas_has_no_owner():
    compiled = CompiledPool.of(replace(POOL, replicas=tuple(replace(r, healthy=False) for r in REPLICAS)))
    assert (compiled.members, compiled.owner(b"key"), list(compiled.walk(b"key"))) == ((), None, [])


@pytest.mark.parametrize(
    ("model", "pool"),
    [("model-p", "p"), ("alias", "p"), ("other", "p"), ("model-q", "q"), ("p", None), ("", None), (None, None)],
)
def test_a_model_leads_to_the_pool_of_that_name(model: str | None, pool: str | None):
    found = CompiledFleet.of(Fleet((POOL, OTHER))).pool_for(model)
    assert (found.pool.id if found else None) == pool


@pytest.mark.parametrize(("model", "found"), [(None, True), ("alias", True), ("nope", False), ("", False)])
def test_the_only_pool_takes_requests_without_a_model_but_none_with_an_unknown_one(model: str | None, found: bool):
    assert (CompiledFleet.of(Fleet((POOL,))).pool_for(model) is not None) == found


def test_the_empty_fleet_has_no_pool():
    assert EMPTY.pool_for(None) is None
    assert CompiledFleet.of(Fleet()) == EMPTY


def test_a_change_of_one_pool_keeps_the_others_table():
    before = CompiledFleet.of(Fleet((POOL, OTHER)))
    changed = Fleet((POOL, OTHER)).apply(HealthChanged("p", "gpu-0", False))
    after = CompiledFleet.of(changed, before)
    assert after.by_id["q"] is before.by_id["q"]
    assert after.by_id["p"].table is not before.by_id["p"].table
    assert after.by_model["alias"] is after.by_id["p"]


def test_a_pool_that_is_gone_is_gone():
    after = CompiledFleet.of(Fleet((OTHER,)), CompiledFleet.of(Fleet((POOL, OTHER))))
    assert (set(after.by_id), set(after.by_model)) == ({"q"}, {"model-q"})
