"""The fleet compiled: models to pools, pools to the table that Envoy has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from homing.core.fleet import Fleet, HashPolicy, HealthChanged, Pool, Replica, State
from homing.core.hashing import Ketama, Maglev, Ring
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


RANKS = (
    *(Replica(f"big-{rank}", "10.0.0.1:8000", weight=2, rank=rank) for rank in range(4)),
    Replica("small", "10.0.0.2:8000"),
)
DATA_PARALLEL = Pool("p", "model-p", replicas=RANKS)


@pytest.mark.parametrize("policy", ["ring", "maglev", "ketama"])
def test_ranks_are_one_host_to_the_data_plane(policy: HashPolicy):
    """The hosts are found by the data plane's own hash, the ranks of one evenly by another."""
    by_id = [("big", 8), ("small", 1)]
    by_address = [("10.0.0.1:8000", 8), ("10.0.0.2:8000", 1)]
    table = {"ring": Ring(by_id, 900), "maglev": Maglev(by_id), "ketama": Ketama(by_address)}[policy]
    compiled = CompiledPool.of(replace(DATA_PARALLEL, hash=policy))
    owners = [owner for key in KEYS if (owner := compiled.owner(key)) is not None]
    assert [owner.host for owner in owners] == [by_id[table.owner(key) or 0][0] for key in KEYS]
    counts = Counter(owner.id for owner in owners if owner.host == "big")
    assert len(counts) == 4
    assert max(counts.values()) < 1.4 * min(counts.values())


def test_a_walk_meets_all_ranks_of_a_host_before_the_next_host():
    compiled = CompiledPool.of(DATA_PARALLEL)
    for key in KEYS[:50]:
        walk = list(compiled.walk(key))
        assert walk[0] == compiled.owner(key)
        assert sorted(r.id for r in walk) == [r.id for r in RANKS]
        assert [r.host for r in walk] in (["big"] * 4 + ["small"], ["small"] + ["big"] * 4)


def test_a_host_stays_in_the_hash_with_all_its_weight_while_one_of_its_ranks_serves():
    one_down = replace(DATA_PARALLEL, replicas=(replace(RANKS[0], healthy=False), *RANKS[1:]))
    before, after = CompiledPool.of(DATA_PARALLEL), CompiledPool.of(one_down)
    for key in KEYS:
        was, now = before.owner(key), after.owner(key)
        assert was is not None
        assert now is not None
        assert was.host == now.host
    down = tuple(replace(r, healthy=r.rank is None) for r in RANKS)
    assert {r.id for r in CompiledPool.of(replace(DATA_PARALLEL, replicas=down)).walk(b"key")} == {"small"}


def test_who_served_is_the_rank_that_was_asked_for_at_the_host_that_answered():
    compiled = CompiledPool.of(replace(DATA_PARALLEL, replicas=(*RANKS, Replica("other-1", "10.0.0.3:8000", rank=1))))
    assert compiled.served("big", "big-2") == "big-2"
    assert compiled.served("other", "big-1") == "other-1"
    assert compiled.served("small", "big-1") == "small"
    assert compiled.served("other", "big-2") == "other", "it has no such rank"
    assert compiled.served("big", "") == "big", "nobody said"
    assert compiled.served("small", "small") == "small"
