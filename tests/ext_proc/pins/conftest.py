"""Real Redis, and pickers that use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis_server import RedisServer
from sharers import Stores


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture
async def stores(redis: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(redis.url)
    yield stores
    for _, store in stores.made:
        await store.close()
