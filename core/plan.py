"""What a change of membership would move, before anything is pushed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from homing.core.fleet import DrainChanged, Event, Fleet, MembershipReported, Pool, Replica, State
from homing.core.movement import must_move, sample
from homing.core.placement.load import Place
from homing.core.placement.pools import CompiledPool


class UnplannableError(ValueError):
    """The change names what is not there, or what is there already. The text says which."""


@dataclass(frozen=True, slots=True)
class Changes:
    """All at once. `add`: replicas by pool."""

    add: tuple[tuple[str, Replica], ...] = ()
    remove: tuple[Place, ...] = ()
    drain: tuple[Place, ...] = ()

    def applied(self, fleet: Fleet) -> Fleet:
        """Raises UnplannableError."""
        for pool_id, replica in self.add:
            pool = _pool(fleet, pool_id)
            if any(r.id == replica.id or r.address == replica.address for r in pool.replicas):
                raise UnplannableError(f"the pool {pool_id} has a replica {replica.id} or {replica.address} already")
            fleet = fleet.apply(MembershipReported(pool_id, (*pool.replicas, replica)))
        for place in self.drain:
            fleet = _applied(fleet, place, DrainChanged(*place, True))
        for pool_id, replica_id in self.remove:
            left = tuple(r for r in _pool(fleet, pool_id).replicas if r.id != replica_id)
            fleet = _applied(fleet, (pool_id, replica_id), MembershipReported(pool_id, left))
        return fleet


@dataclass(frozen=True, slots=True)
class Share:
    """Of the hash, before and after: 0 where a replica is not in it."""

    replica: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """One pool that changes. `hash_moved`: the share of all sessions that would get another owner if no picker knew
    where they live; `hash_least`: what no hash can avoid. Of the sessions that the pickers know (None: nobody was
    asked) `sessions_moved` live at replicas that go, and `sessions_draining` at replicas that drain."""

    pool: str
    hash_moved: float
    hash_least: float
    sessions: int | None
    sessions_moved: int | None
    sessions_draining: int | None
    shares: tuple[Share, ...]


def plan(fleet: Fleet, changes: Changes, sessions: Mapping[Place, int] | None) -> tuple[PoolPlan, ...]:
    """Of every pool that changes, in the fleet's order. `sessions` by where they live. Raises UnplannableError."""
    planned = changes.applied(fleet)
    pairs = zip(fleet.pools, planned.pools, strict=True)
    return tuple(_pool_plan(before, after, sessions) for before, after in pairs if before != after)


def _pool_plan(before: Pool, after: Pool, sessions: Mapping[Place, int] | None) -> PoolPlan:
    keys = sample()
    owners = [_owners(CompiledPool.of(pool), keys) for pool in (before, after)]
    moved = sum(old != new for old, new in zip(*owners, strict=True)) / len(keys)
    counts = [Counter(found) for found in owners]
    named = dict.fromkeys(r.id for pool in (before, after) for r in pool.replicas)
    shares = tuple(Share(name, *(count[name] / len(keys) for count in counts)) for name in named)
    least = must_move(*([(r.id, r.weight) for r in pool.replicas if r.in_hash] for pool in (before, after)))
    if sessions is None:
        return PoolPlan(before.id, moved, least, None, None, None, shares)
    living = {r.id: sessions.get((before.id, r.id), 0) for r in before.replicas}
    gone = sum(n for replica_id, n in living.items() if after.replica(replica_id) is None)
    draining = sum(living[r.id] for r in after.replicas if r.id in living and r.state is State.DRAINING)
    return PoolPlan(before.id, moved, least, sum(living.values()), gone, draining, shares)


def _owners(pool: CompiledPool, keys: Sequence[bytes]) -> list[str | None]:
    return [owner.id if (owner := pool.owner(key)) else None for key in keys]


def _pool(fleet: Fleet, pool_id: str) -> Pool:
    if (pool := fleet.pool(pool_id)) is None:
        raise UnplannableError(f"there is no pool {pool_id}")
    return pool


def _applied(fleet: Fleet, place: Place, event: Event) -> Fleet:
    if _pool(fleet, place[0]).replica(place[1]) is None:
        raise UnplannableError(f"there is no replica {place[1]} in the pool {place[0]}")
    return fleet.apply(event)
