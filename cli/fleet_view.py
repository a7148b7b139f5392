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
    failing: bool = False


class Pool(msgspec.Struct):
    id: str
    served_name: str
    replicas: list[Replica]


class Fleet(msgspec.Struct):
    version: str
    told: str
    pools: list[Pool]


class Drain(msgspec.Struct):
    pool: str
    replica: str
    state: str
    deadline_s: float
    sessions: int | None
    streams: int | None
    why: str | None
    moved: int | None


class Drains(msgspec.Struct):
    drains: list[Drain]


def place(api: Api, name: str) -> tuple[str, str]:
    """(pool, replica) of POOL/ID, or of an ID that only one pool has. Raises click.ClickException."""
    fleet, drains = api.call("GET", "/api/fleet", Fleet), api.call("GET", "/api/drains", Drains)
    known = {(pool.id, r.id) for pool in fleet.pools for r in pool.replicas}
    known |= {(drain.pool, drain.replica) for drain in drains.drains}
    found = sorted(p for p in known if name in (p[1], f"{p[0]}/{p[1]}"))
    if len(found) == 1:
        return found[0]
    if found:
        raise click.ClickException(f"several pools have {name}: say one of {', '.join(map('/'.join, found))}")
    raise click.ClickException(
        f"there is no replica {name}; known: {', '.join(map('/'.join, sorted(known))) or 'none'}"
    )
