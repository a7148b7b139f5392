"""Who says that a replica exists, and who is believed: the file before the API, the API before what was discovered.

Pure. A source reports the whole set of one pool's replicas; a replica that several report is taken from the first of
them, and what the others say differently is a Difference, to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from homing.core.fleet import Pool, Replica

FILE = "file"

Reports = Mapping[str, Mapping[str, tuple[Replica, ...]]]
"""By source and pool id, the most trusted source first. The file is not among them: it is the pools themselves."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A source says something else of a replica than the one that is believed. `ours` and `theirs` in words."""

    pool: str
    replica: str
    believed: str
    source: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Merged:
    """`sources`: by (pool id, replica id), who is believed."""

    pools: tuple[Pool, ...]
    sources: Mapping[tuple[str, str], str]
    differences: tuple[Difference, ...]


def merge(pools: Sequence[Pool], reports: Reports) -> Merged:
    """The pools of the file with the replicas that other sources report. Reports of unknown pools are left out.

    No two replicas of a pool may share an address (Envoy would take them for one host): the first keeps it."""
    merged: list[Pool] = []
    differences: list[Difference] = []
    sources: dict[tuple[str, str], str] = {}
    for pool in pools:
        by_id = {r.id: (FILE, r) for r in pool.replicas}
        by_address = {r.address: r for r in pool.replicas}
        by_host = {r.host: r for r in pool.replicas}
        for source, reported in reports.items():
            for replica in reported.get(pool.id, ()):
                taken_by = by_address.get(replica.address) or by_host.get(replica.host) or replica
                if replica.id in by_id:
                    believed, ours = by_id[replica.id]
                    if _words(ours) != _words(replica):
                        differences.append(
                            Difference(pool.id, replica.id, believed, source, _words(ours), _words(replica))
                        )
                elif not _together(taken_by, replica):
                    believed, ours = by_id[taken_by.id]
                    theirs = f"{replica.id} at {replica.address}"
                    differences.append(
                        Difference(pool.id, taken_by.id, believed, source, f"{ours.id} at {ours.address}", theirs)
                    )
                else:
                    by_id[replica.id] = (source, replica)
                    by_address[replica.address] = by_host[replica.host] = replica
        sources |= {(pool.id, replica_id): source for replica_id, (source, _) in by_id.items()}
        merged.append(replace(pool, replicas=tuple(replica for _, replica in by_id.values())))
    return Merged(tuple(merged), sources, tuple(differences))


def _together(one: Replica, other: Replica) -> bool:
    """Whether they may share an address: the data-parallel ranks of one host do, and only they."""
    if one.rank is None or other.rank is None:
        return one is other
    return (one.host, one.address) == (other.host, other.address)


def _words(replica: Replica) -> str:
    return f"address {replica.address}, weight {replica.weight}"
