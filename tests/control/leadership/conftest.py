"""Real Redis, and control services that share it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis_server import RedisServer

from homing.control.leadership.lease import Lease
from homing.control.leadership.shared_state import SharedState
from homing.ext_proc.pins.redis_url import server

PREFIX = "homing:test:control:"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    started = RedisServer(tmp_path / "redis").start()
    yield started
    started.kill()


@pytest.fixture
async def leases(redis: RedisServer) -> AsyncIterator[Callable[[], Lease]]:
    clients = []

    def make() -> Lease:
        clients.append(server(redis.url))
        return Lease(clients[-1], PREFIX)

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def states(redis: RedisServer) -> AsyncIterator[Callable[[], SharedState]]:
    made = []

    def make() -> SharedState:
        made.append(SharedState(server(redis.url), PREFIX))
        return made[-1]

    yield make
    for state in made:
        await state.close()
