"""Pickers as far as their sharing goes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from homing.core.chains import Chains
from homing.core.history import History, read
from homing.core.journal import Word
from homing.core.placement.load import Load
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.core.session import Homes
from homing.ext_proc.pins.counts import PinCounts
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.redis_store import RedisStore
from homing.ext_proc.pins.redis_url import client

TTL_S = 1000.0
LIMIT_S = 10.0


HELLO = {"role": "user", "content": "hello"}
HISTORY, NEXT = (
    read(json.dumps({"messages": messages}).encode(), (), b"seed").history
    for messages in ([HELLO], [HELLO, {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "go on"}])
)


PROMPT = Prompt((1, 2), (100, 200))


@dataclass
class Sharer:
    """One picker's knowledge, with its name."""

    name: str
    max_sessions: int = 10_000
    counts: PinCounts = field(default_factory=PinCounts)

    def __post_init__(self) -> None:
        self.homes = Homes(TTL_S, self.max_sessions)
        self.chains = Chains(TTL_S, self.max_sessions)
        self.load = Load()
        self.prefixes = Index()
        self.knowledge = Knowledge(self.name, self.homes, self.chains, self.load, self.prefixes, time.time)

    def put(self, digest: bytes, replica: str) -> None:
        self.homes.put(digest, replica, time.time())

    def serve(self, history: History | None, replica: str) -> None:
        assert history is not None
        self.chains.put(history, replica, time.time())

    def served(self, history: History | None) -> tuple[str, ...]:
        """Who served its earlier turns."""
        assert history is not None
        return self.chains.look_up(history, time.time())[1]

    def send(self, prompt: Prompt, replica: str) -> None:
        self.prefixes.placed("pool", replica, prompt, time.time())

    def holders(self, prompt: Prompt) -> set[str]:
        return set(self.prefixes.held("pool", prompt, time.time()))

    def home(self, digest: bytes) -> str | None:
        return self.homes.get(digest, time.time())

    def word(self, digest: bytes) -> Word:
        (word,) = self.homes.words_of([digest], time.time())
        return word

    def in_redis(self, url: str) -> RedisStore:
        return RedisStore(client(url), client(url), self.knowledge, self.counts, "test")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 (what it waits for is on the other side of a socket)
            await asyncio.sleep(0.005)


@dataclass
class Stores:
    """Pickers that use one Redis; `rounds` lets each of them speak and hear once."""

    url: str
    made: list[tuple[Sharer, RedisStore]] = field(default_factory=list)

    def add(self, name: str, url: str = "") -> tuple[Sharer, RedisStore]:
        sharer = Sharer(name)
        self.made.append((sharer, sharer.in_redis(url or self.url)))
        return self.made[-1]

    async def rounds(self, count: int = 1) -> list[bool]:
        return [await store.round() for _ in range(count) for _, store in self.made]
