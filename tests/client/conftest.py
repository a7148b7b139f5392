"""Gateways, and both libraries in both manners, driven alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
from client.gateway import Gateway, serving

from homing_client import Conversation


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving() as gateway:
        yield gateway


@pytest.fixture
def other() -> Iterator[Gateway]:
    """Another origin."""
    with serving() as gateway:
        yield gateway


@dataclass(frozen=True)
class Library:
    """One library in one manner. What a sync client does is done in a thread, so that two can be under way."""

    module: ModuleType
    is_async: bool
    made: list[Any] = field(default_factory=list)

    @property
    def opposite(self) -> Library:
        return replace(self, is_async=not self.is_async)

    def client(self, **settings: Any) -> Any:
        make = self.module.AsyncClient if self.is_async else self.module.Client
        self.made.append(make(**{"trust_env": False, **settings}))
        return self.made[-1]

    async def do(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_async:
            return await method(*args, **kwargs)
        return await asyncio.to_thread(method, *args, **kwargs)

    async def turn(self, client: Any, path: str = "chat/completions", **kwargs: Any) -> Any:
        return await self.do(client.post, path, **{"json": {"model": "m"}, **kwargs})

    async def close(self, client: Any) -> None:
        await self.do(client.aclose if self.is_async else client.close)

    async def say_goodbye(self, conversation: Conversation, client: Any) -> None:
        await self.do(conversation.aclose if self.is_async else conversation.close, client)


@pytest.fixture(params=["httpx", "httpx-async", "httpx2", "httpx2-async"])
async def library(request: pytest.FixtureRequest) -> AsyncIterator[Library]:
    name, _, manner = request.param.partition("-")
    library = Library({"httpx": httpx, "httpx2": httpx2}[name], manner == "async")
    yield library
    for client in library.made:
        await library.close(client)
