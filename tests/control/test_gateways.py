"""Several Envoys whose pickers share nothing are warned of, once."""

from __future__ import annotations

import asyncio

import pytest

from homing.control.gateways import warn_of_pins_apart
from homing.core.config import parse

POOLS = "pools: {p: {replicas: [{id: a, address: '10.0.0.1:8000'}]}}\n"
MEMORY = parse(POOLS, "f")
REDIS = parse(POOLS + "sessions: {pins: 'redis://cache', secret: env:S}", "f")


async def warned(envoys: list[int], config: object, caplog: pytest.LogCaptureFixture) -> int:
    """How often, over as many looks as `envoys` has numbers, and some more."""
    seen = iter([*envoys, *([envoys[-1]] * 20)])
    current = [0]

    def count() -> int:
        current[0] = next(seen, envoys[-1])
        return current[0]

    task = asyncio.create_task(warn_of_pins_apart(count, lambda: config, look_s=0.001))
    await asyncio.wait([task], timeout=0.5)
    task.cancel()
    return caplog.text.count("Envoys are connected and sessions.pins is memory")


async def test_two_envoys_without_a_shared_store_are_warned_of_once(caplog: pytest.LogCaptureFixture):
    assert await warned([0, 1, 2, 2, 2], MEMORY, caplog) == 1


@pytest.mark.parametrize(("envoys", "config"), [([1], MEMORY), ([1, 2, 1, 2, 1], MEMORY), ([2], REDIS)])
async def test_one_envoy_or_one_that_connects_again_or_a_shared_store_is_not(
    envoys: list[int], config: object, caplog: pytest.LogCaptureFixture
):
    assert await warned(envoys, config, caplog) == 0
