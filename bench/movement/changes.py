"""The kinds of change, as membership events, and what the product's tables make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from homing.core.fleet import DrainChanged, Event, Fleet, HashPolicy, HealthChanged, MembershipReported, Pool, Replica
from homing.core.hashing import Ketama
from homing.core.movement import Owner, moved, must_move
from homing.core.placement.pools import CompiledPool

POOL = "pool"


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    event: Callable[[tuple[Replica, ...]], Event]


CHANGES = (
    Change("add one", lambda known: MembershipReported(POOL, (*known, replica(len(known))))),
    Change("remove one", lambda known: MembershipReported(POOL, known[:-1])),
    Change("one stops answering", lambda known: HealthChanged(POOL, known[-1].id, False)),
    Change(
        "double one's weight",
        lambda known: MembershipReported(POOL, (*known[:-1], replace(known[-1], weight=2 * known[-1].weight))),
    ),
    Change("drain one", lambda known: DrainChanged(POOL, known[-1].id, True)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Shares of the sessions: what any hash must move, and what each does."""

    replicas: int
    change: str
    least: float
    ring: float
    maglev: float
    ketama: float


def replica(index: int) -> Replica:
    return Replica(f"gpu-{index}", f"10.0.{index // 250}.{index % 250 + 1}:8000")


def rows(sizes: Sequence[int], keys: Sequence[bytes]) -> list[Row]:
    return [row(size, change, keys) for size in sizes for change in CHANGES]


def row(size: int, change: Change, keys: Sequence[bytes]) -> Row:
    def share(hash_: HashPolicy) -> float:
        before, after = pools(hash_, size, change)
        return moved(envoy(before), envoy(after), keys)

    before, after = pools("ring", size, change)
    return Row(
        size,
        change.name,
        must_move(hosts(before), hosts(after)),
        share("ring"),
        share("maglev"),
        moved(nginx(before), nginx(after), keys),
    )


def pools(hash_: HashPolicy, size: int, change: Change) -> tuple[Pool, Pool]:
    before = Fleet((Pool(POOL, "model", hash=hash_, replicas=tuple(map(replica, range(size)))),))
    return before.pools[0], before.apply(change.event(before.pools[0].replicas)).pools[0]


def hosts(pool: Pool) -> list[tuple[str, int]]:
    return [(r.id, r.weight) for r in pool.replicas if r.in_hash]


def envoy(pool: Pool) -> Owner:
    compiled = CompiledPool.of(pool)

    def owner(key: bytes) -> str | None:
        found = compiled.owner(key)
        return found.id if found else None

    return owner


def nginx(pool: Pool) -> Owner:
    """Who does not answer keeps its points there, and is passed over."""
    table = Ketama([(r.address, r.weight) for r in pool.replicas])

    def owner(key: bytes) -> str | None:
        return next((pool.replicas[i].id for i in table.walk(key) if pool.replicas[i].in_hash), None)

    return owner
