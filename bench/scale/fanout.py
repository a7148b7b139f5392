"""How long a change takes to reach all Envoys, by gateways and by replicas: real streams, in both modes of xDS."""

from __future__ import annotations

import asyncio

from bench import xds
from bench.scale.curve import Curve
from bench.scale.sizes import Sizes

PART = "fan-out"
BOUND_S = 1.0
BECAUSE = "a change is to reach all in a second"
CHANGES = 5


def curves(sizes: Sizes) -> list[Curve]:
    return asyncio.run(_curves(sizes))


async def _curves(sizes: Sizes) -> list[Curve]:
    """On one event loop, since grpc.aio is not made to be ended and begun again."""
    gateways, most = sizes.gateways[-1], sizes.replicas[-1]
    made = []
    for mode in ("state of the world", "delta"):
        by_gateways = tuple([(streams, await _median(mode, streams, most)) for streams in sizes.gateways])
        by_replicas = tuple([(replicas, await _median(mode, gateways, replicas)) for replicas in sizes.replicas])
        made += [
            Curve(PART, f"{mode}, {most:,} replicas", "s", "gateways", by_gateways, BOUND_S, BECAUSE),
            Curve(PART, f"{mode}, {gateways} gateways", "s", "replicas", by_replicas, BOUND_S, BECAUSE),
        ]
    return made


async def _median(mode: str, streams: int, replicas: int) -> float:
    return (await xds.measure(mode, streams, replicas, CHANGES, idle_s=0.0)).median_s
