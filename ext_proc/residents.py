"""`GET /replicas` of a picker: what lives where. The control service asks it while a replica drains. `GET /outcomes`:
what became of the requests there lately."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from homing.core.placement.load import Place
from homing.core.residents import Census, Residents

if TYPE_CHECKING:
    from homing.ext_proc.picker import Picker

BATCH = 2_000
"""Sessions counted before the next request has its turn: less than a millisecond."""


def routes(picker: Picker, clock: Callable[[], float], shared: bool = False) -> tuple[Route, ...]:
    """`shared`: the table is that of all pickers together."""

    async def replicas(_: Request) -> Response:
        return Response(msgspec.json.encode(await census(picker, clock(), shared)), media_type="application/json")

    async def outcomes(_: Request) -> Response:
        return Response(msgspec.json.encode(picker.tallies(clock())), media_type="application/json")

    return (Route("/replicas", replicas), Route("/outcomes", outcomes))


async def census(picker: Picker, now: float, shared: bool = False) -> Census:
    """Every replica of the picker's fleet, in its order."""
    living = await _counted(picker.placer.residents(picker.fleet.by_id.values(), now))
    load = picker.placer.load
    found = (
        Residents(p.pool.id, r.id, r.state, living[p.pool.id, r.id], load.in_flight((p.pool.id, r.id)))
        for p in picker.fleet.by_id.values()
        for r in p.pool.replicas
    )
    return Census(picker.version or "", shared, tuple(found))


async def _counted(homes: Iterator[Place]) -> Counter[Place]:
    counted: Counter[Place] = Counter()
    while batch := tuple(islice(homes, BATCH)):
        counted.update(batch)
        await asyncio.sleep(0)
    return counted
