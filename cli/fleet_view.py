"""What the API says of the fleet, as far as the commands show it."""

from __future__ import annotations

import click
import msgspec

from homing.cli.api_client import Api


class Replica(msgspec.Struct):
    id: str
    address: str
    weight: int
    state: str
    healthy: bool
    takes_new_sessions: bool = True
    failing: bool = False
    rank: int | None = None
    trouble: str = ""


class Pool(msgspec.Struct):
    id: str
    served_name: str
    replicas: list[Replica]


class File(msgspec.Struct, frozen=True):
    """`refused`: why the newest is not used; empty where it is."""

    refused: str
    refused_at_s: float | None


class Fleet(msgspec.Struct):
    version: str
    told: str
    pools: list[Pool]
    file: File = File("", None)


class Drain(msgspec.Struct):
    pool: str
    replica: str
    state: str
    deadline_s: float
    sessions: int | None
    streams: int | None
    why: str | None
    moved: int | None
    rank: int | None = None


class Drains(msgspec.Struct):
    drains: list[Drain]


Place = tuple[str, str]
"""(pool, replica)"""


def places(api: Api, name: str) -> list[Place]:
    """Of POOL/ID, or of an ID that only one pool has: the replica, or all data-parallel ranks of that address. Raises
    click.ClickException."""
    named: dict[Place, list[Place]] = {}
    for (pool, replica), rank in _known(api).items():
        host = replica if rank is None else replica.removesuffix(f"-{rank}")
        for known in {replica, host}:
            named.setdefault((pool, known), []).append((pool, replica))
    found = sorted(p for p in named if name in (p[1], f"{p[0]}/{p[1]}"))
    if len(found) == 1:
        return sorted(named[found[0]])
    if found:
        raise click.ClickException(f"several pools have {name}: say one of {', '.join(map('/'.join, found))}")
    raise click.ClickException(
        f"there is no replica {name}; known: {', '.join(map('/'.join, sorted(named))) or 'none'}"
    )


def _known(api: Api) -> dict[Place, int | None]:
    """The fleet's replicas, and those that were drained away, with their ranks."""
    fleet, drains = api.call("GET", "/api/fleet", Fleet), api.call("GET", "/api/drains", Drains)
    drained = {(drain.pool, drain.replica): drain.rank for drain in drains.drains}
    return drained | {(pool.id, r.id): r.rank for pool in fleet.pools for r in pool.replicas}
