"""In which order a change of the fleet is told, so that nobody is sent where nobody can go. Pure.

1. The pickers hear of who leaves: from then on nothing new is sent there.
2. The Envoys get the old and the new together.
3. When they have it, the pickers hear of who joins: a picker names only what every Envoy knows.
4. The Envoys drop what has left.

A step that would tell nobody anything new is left out. The plan starts from what was told, whatever became of
it, so a change in the middle of another one is simply the next plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from homing.core.config import Address
from homing.core.fleet import Fleet, Pool, Replica


@dataclass(frozen=True, slots=True)
class TellPickers:
    """`awaited`: the next step is safe only when they have it (or have had their time)."""

    fleet: Fleet
    awaited: bool


@dataclass(frozen=True, slots=True)
class TellEnvoys:
    fleet: Fleet
    awaited: bool


Step = TellPickers | TellEnvoys


def plan(pickers: Fleet, envoys: Fleet, target: Fleet, *, reconfigured: bool = False) -> tuple[Step, ...]:
    """From what pickers and Envoys were told last to `target` for both. `reconfigured`: the Envoys have something
    to hear that is not in the fleet."""
    without_leavers, both = _without_leavers(pickers, target), _both(envoys, target)
    joining = target != without_leavers
    steps: list[Step] = []
    if without_leavers != pickers:
        steps.append(TellPickers(without_leavers, awaited=target != envoys or reconfigured))
    if both != envoys or reconfigured:
        steps.append(TellEnvoys(both, awaited=joining))
    if joining:
        steps.append(TellPickers(target, awaited=False))
    if target != both:
        steps.append(TellEnvoys(target, awaited=False))
    return tuple(steps)


def reachable(fleet: Fleet) -> Fleet:
    """Without replicas whose names never resolved: one of them in EDS, and Envoy refuses the whole response."""

    def resolved(replica: Replica) -> bool:
        return Address.parse(replica.address).ip is not None

    return Fleet(tuple(replace(pool, replicas=tuple(filter(resolved, pool.replicas))) for pool in fleet.pools))


def _without_leavers(told: Fleet, target: Fleet) -> Fleet:
    """What the pickers may know before the Envoys do: everything that takes load away, nothing that adds any."""

    def replicas(old: Pool, new: Pool) -> Iterable[Replica]:
        for replica in old.replicas:
            coming = new.replica(replica.id)
            if coming is not None:
                # An address that Envoy does not know yet would fall to the hash: the old one stays for as long.
                joins = coming.address != replica.address or (coming.in_hash and not replica.in_hash)
                yield replica if joins else coming

    def pools() -> Iterable[Pool]:
        for old in told.pools:
            new = target.pool(old.id)
            if new is not None:
                # An alias that Envoy routes and the picker does not rewrite would reach the engine: pickers first.
                aliases = (*old.aliases, *(a for a in new.aliases if a not in old.aliases))
                yield replace(old, aliases=aliases, replicas=tuple(replicas(old, new)))

    return Fleet(tuple(pools()))


def _both(told: Fleet, target: Fleet) -> Fleet:
    """Old and new together, the new where they differ, in the old order."""

    def pools() -> Iterable[Pool]:
        for old in told.pools:
            new = target.pool(old.id)
            yield old if new is None else replace(new, replicas=tuple(_replicas(old, new)))
        yield from (pool for pool in target.pools if told.pool(pool.id) is None)

    return Fleet(tuple(pools()))


def _replicas(old: Pool, new: Pool) -> Iterable[Replica]:
    for replica in old.replicas:
        coming = new.replica(replica.id)
        yield replica if coming is None else coming
    yield from (r for r in new.replicas if old.replica(r.id) is None)
