"""Sessions' system texts through a real Redis, from one picker to another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis_server import RedisServer

from homing.core.chat.body import members
from homing.core.chat.shapes import MESSAGES
from homing.core.context.kept import MalformedError, pack, unpack
from homing.core.context.lost import MAX_CHANGES, Sessions, Spoken, Thread, judge
from homing.core.history import read
from homing.ext_proc.pins.counts import Read
from homing.ext_proc.pins.redis_url import client
from homing.ext_proc.texts import TextStore

A, B = b"a" * 16, b"b" * 16
SECRET_TEXT = "Never tell anybody of the project Nightingale."


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture
def threads() -> tuple[Thread, ...]:
    body = json.dumps({"system": SECRET_TEXT, "messages": [{"role": "user", "content": "hello"}]}).encode()
    turns, history = MESSAGES.read(members(body)), read(body, (), b"").history
    assert turns is not None
    assert history is not None
    return judge((), Spoken.of(members(body), turns, history), remember=True).threads


class Pickers:
    def __init__(self, url: str) -> None:
        self._url = url
        self.read: list[Read] = []
        self.stores: list[TextStore] = []

    def add(self, key: bytes = b"k" * 32) -> tuple[Sessions, TextStore]:
        sessions = Sessions(100.0, 100)
        store = TextStore(client(self._url), client(self._url), sessions, key, "ns", lambda: 0.0, self.read.append)
        self.stores.append(store)
        return sessions, store


@pytest.fixture
async def pickers(redis: RedisServer) -> AsyncIterator[Pickers]:
    pickers = Pickers(redis.url)
    yield pickers
    for store in pickers.stores:
        task = asyncio.create_task(store.run())  # it closes its clients when it ends
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


def test_threads_come_back_as_they_were(threads: tuple[Thread, ...]):
    (back,) = unpack(pack(threads))
    assert (back.unsaid, back.tail, back.manner, back.system) == (
        threads[0].unsaid, threads[0].tail, threads[0].manner, threads[0].system,
    )  # fmt: skip
    assert [bytes(turn.content) for turn in back.texts] == [json.dumps(SECRET_TEXT).encode()]
    assert back.texts[0].outside
    for nonsense in (b"", b"\xff", b"\x91\x01"):
        with pytest.raises(MalformedError):
            unpack(nonsense)


async def test_another_picker_reads_what_a_session_has_said(
    pickers: Pickers, threads: tuple[Thread, ...], redis: RedisServer
):
    one, writing = pickers.add()
    one.put(A, threads, 0.0)
    assert await writing.write()
    other, reading = pickers.add()
    assert await reading.fetch([A, B]) == {A}
    assert other.get(A, 0.0)[0].system == threads[0].system
    assert not await reading.write(), "what was read is not told again"
    one.forget(A)
    await writing.write()
    assert await reading.fetch([A]) == set()


async def test_redis_sees_neither_text_nor_another_key_reads_it(
    pickers: Pickers, threads: tuple[Thread, ...], redis: RedisServer
):
    one, writing = pickers.add()
    one.put(A, threads, 0.0)
    await writing.write()
    stored = redis.command("GET", f"homing:ns:said:{A.decode()}")
    assert stored.startswith("$")
    assert "Nightingale" not in stored
    assert 0 < int(redis.command("PTTL", f"homing:ns:said:{A.decode()}").strip().lstrip(":")) <= 100_000
    _, stranger = pickers.add(b"x" * 32)
    assert await stranger.fetch([A]) == set()


async def test_a_redis_that_is_away_costs_nothing_but_the_look(
    pickers: Pickers, threads: tuple[Thread, ...], redis: RedisServer
):
    one, store = pickers.add()
    redis.freeze()
    one.put(A, threads, 0.0)
    running = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    for _ in range(3):
        wait = store.read(B)
        assert wait is not None
        async with asyncio.timeout(1):
            await wait
    assert pickers.read == [Read.LATE] * 3
    assert store.read(B) is None
    redis.thaw()
    running.cancel()
    await asyncio.wait([running])


def test_changes_that_nobody_takes_are_bounded(threads: tuple[Thread, ...]):
    sessions = Sessions(100.0, 10)
    changes = sessions.changes()
    for i in range(MAX_CHANGES + 5):
        sessions.put(b"%d" % i, threads, 0.0)
    assert len(changes) == MAX_CHANGES
    assert b"4" not in changes
    assert sessions.changes() is changes
