"""What operators decide at run time: how far homing may go for a pool, and which replicas get few new sessions.

The file says how far it may go at most; a policy takes away from that and never adds, so that the file wins and a
policy that was forgotten does no more than what was allowed anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from homing.core.fleet import MODES, Fleet, Mode, Pool


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """`mode`: at most; None: what the file says. `shares`: of the pool's new sessions, by replica, from 0 to 1."""

    mode: Mode | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return self.mode is None and not self.shares


@dataclass(frozen=True, slots=True)
class Policy:
    """`bypass`: every pool is off, as if homing were not there. Each change is another `version`; `at_s` since 1970."""

    version: int = 0
    at_s: float = 0.0
    who: str = ""
    bypass: bool = False
    pools: Mapping[str, PoolPolicy] = field(default_factory=dict)

    def of(self, pool_id: str) -> PoolPolicy:
        return self.pools.get(pool_id, NOTHING)


NOTHING = PoolPolicy()


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """What the policy says and what holds instead, in words."""

    pool: str
    policy: str
    holds: str


def lesser(one: Mode, other: Mode | None) -> Mode:
    """The one that does less."""
    return one if other is None else min(one, other, key=MODES.index)


def applied(policy: Policy, fleet: Fleet) -> Fleet:
    """The fleet as the data planes are to know it."""

    def pool(before: Pool) -> Pool:
        said = policy.of(before.id)
        replicas = tuple(replace(r, share=said.shares.get(r.id, 1.0)) for r in before.replicas)
        return replace(before, mode="off" if policy.bypass else said.mode, replicas=replicas)

    return Fleet(tuple(map(pool, fleet.pools)))


def within(fleet: Fleet) -> Policy:
    """The policy that was applied to it, for whoever goes on with it alone. Every pool off is taken for the bypass."""

    def said(pool: Pool) -> PoolPolicy:
        return PoolPolicy(pool.mode, {r.id: r.share for r in pool.replicas if r.share < 1})

    pools = {pool.id: said(pool) for pool in fleet.pools}
    if pools and all(each.mode == "off" for each in pools.values()):
        return Policy(bypass=True, pools={p: replace(each, mode=None) for p, each in pools.items() if each.shares})
    return Policy(pools={pool_id: each for pool_id, each in pools.items() if not each.empty})


def differences(policy: Policy, modes: Mapping[str, Mode], fleet: Fleet) -> Iterator[PolicyDifference]:
    """What of it does not hold. `modes`: of the file, by pool."""
    for pool_id, said in sorted(policy.pools.items()):
        pool, mode = fleet.pool(pool_id), modes.get(pool_id)
        if pool is None or mode is None:
            yield PolicyDifference(pool_id, "a policy", "there is no such pool")
            continue
        if said.mode is not None and lesser(mode, said.mode) != said.mode:
            yield PolicyDifference(pool_id, f"mode {said.mode}", f"mode {mode}, as the file says")
        for replica_id in sorted(set(said.shares) - {r.id for r in pool.replicas}):
            yield PolicyDifference(pool_id, f"a share for {replica_id}", "it is not there")
