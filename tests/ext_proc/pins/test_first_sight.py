"""The one read on the way of a request: bounded, batched, and given up where it does not help."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from homing.core.circuit import Circuit
from homing.ext_proc.pins.counts import Read
from homing.ext_proc.pins.first_sight import BATCH, LIMIT_S, FirstSight

A, B = b"a" * 16, b"b" * 16


@dataclass
class FakeStore:
    known: set[bytes] = field(default_factory=set)
    asked: list[list[bytes]] = field(default_factory=list)
    error: Exception | None = None
    frozen: asyncio.Event | None = None

    async def fetch(self, digests: Sequence[bytes]) -> set[bytes]:
        self.asked.append([*digests])
        if self.frozen is not None:
            await self.frozen.wait()
        if self.error is not None:
            raise self.error
        return self.known & {*digests}


@dataclass
class Seeing:
    store: FakeStore = field(default_factory=FakeStore)
    counts: Counter[Read] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.first_sight = FirstSight(self.store.fetch, self._count, Circuit(3, 60.0), limit_s=5.0)

    def in_a_hurry(self) -> None:
        """The store says nothing, and nobody waits for long."""
        self.store.frozen = asyncio.Event()
        self.first_sight._limit_s = LIMIT_S

    def _count(self, outcome: Read) -> None:
        self.counts[outcome] += 1

    async def read(self, *digests: bytes) -> None:
        waits = [wait for digest in digests if (wait := self.first_sight.read(digest)) is not None]
        await asyncio.wait_for(asyncio.gather(*waits), 5)


@pytest.fixture
async def seeing() -> AsyncIterator[Seeing]:
    seeing = Seeing()
    task = asyncio.create_task(seeing.first_sight.run())
    yield seeing
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_comes_together_is_asked_together_and_each_digest_once(seeing: Seeing):
    seeing.store.known = {A}
    await seeing.read(A, B, A)
    assert seeing.store.asked == [[A, B]]
    assert seeing.counts == {Read.FOUND: 2, Read.ABSENT: 1}


async def test_many_are_asked_in_batches(seeing: Seeing):
    digests = [b"%16d" % i for i in range(BATCH + 1)]
    await seeing.read(*digests)
    assert [len(batch) for batch in seeing.store.asked] == [BATCH, 1]


async def test_a_store_that_says_nothing_is_waited_for_no_longer_than_the_limit(seeing: Seeing):
    seeing.in_a_hurry()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await seeing.read(A)
    assert loop.time() - began >= LIMIT_S * 0.9
    assert seeing.counts == {Read.LATE: 1}


async def test_after_three_that_were_late_nobody_is_asked_any_more(seeing: Seeing):
    seeing.in_a_hurry()
    for digest in (A, B, b"c" * 16):
        await seeing.read(digest)
    assert seeing.first_sight.read(b"d" * 16) is None
    assert seeing.counts == {Read.LATE: 3, Read.SKIPPED: 1}


async def test_questions_that_nobody_waits_for_any_more_are_not_asked(seeing: Seeing):
    seeing.in_a_hurry()
    await seeing.read(A)
    await seeing.read(B)
    assert seeing.store.frozen is not None
    seeing.store.frozen.set()
    await asyncio.sleep(0.01)
    assert seeing.store.asked == [[A]]


async def test_an_error_of_the_store_is_no_error_of_the_request(seeing: Seeing):
    seeing.store.error = ValueError("nonsense")
    await seeing.read(A)
    seeing.store.error = None
    await seeing.read(B)
    assert seeing.counts == {Read.FAILED: 1, Read.ABSENT: 1}


async def test_a_stream_that_is_reset_takes_its_question_back_and_nobody_elses(seeing: Seeing):
    seeing.store.known = {A}
    gone, stays = seeing.first_sight.read(A), seeing.first_sight.read(A)
    assert isinstance(gone, asyncio.Future)
    assert stays is not None
    gone.cancel()
    await asyncio.wait_for(stays, 5)
    assert seeing.counts == {Read.FOUND: 1}
