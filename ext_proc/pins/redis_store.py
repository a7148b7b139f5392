"""Homes in Redis: what gateways share that do not reach each other.

Each session has a key of its own that expires with it, read when another gateway sees the session for the first time.
Every change goes into one stream too, which all pickers read: so a session that both know moves for both, and the load
is known. A round every 100 ms does all of it, in a few pipelines without transactions. What fails is tried again in a
later round; nothing waits for it, and nothing but the homes in Redis depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence

import msgspec
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    OutOfMemoryError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from homing.core.journal import Word
from homing.ext_proc.pins.counts import Peer, PinCounts, Why
from homing.ext_proc.pins.first_sight import give_up_if_cancelled
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.message import MAX_BYTES, MalformedMessageError, Message, decode, decode_word, encode
from homing.ext_proc.pins.redis_url import Client, Pipeline

INTERVAL_S = 0.1
RETRY_S = 0.5
ROUND_S = 2.0
FETCH_S = 0.25
QUIET_S = 0.5
PIPELINE = 100
"""Commands in one go: packing them and reading the answers takes the loop a millisecond."""

STREAM_LENGTH = 600
"""Messages that are kept: a minute of one picker that is never silent, or of ten a few seconds."""

MESSAGES = 100
"""Of the stream in one round."""

BEGINNING = b"0-0"

log = logging.getLogger(__name__)


class RedisStore:
    """`rounds` and `reads`: two clients, so that a question of 5 ms never waits behind a round."""

    def __init__(self, rounds: Client, reads: Client, knowledge: Knowledge, counts: PinCounts, namespace: str) -> None:
        self._rounds = rounds
        self._reads = reads
        self._knowledge = knowledge
        self._counts = counts
        self._untold = knowledge.untold()
        self._prefix = f"homing:{namespace}:home:".encode()
        self._stream = f"homing:{namespace}:stream".encode()
        self._epoch_key = f"homing:{namespace}:epoch".encode()
        self._epoch: bytes | None = None
        self._cursor = BEGINNING
        self._heard_at = 0.0
        self._said: tuple[list[tuple[str, str, object]], float] = ([], 0.0)
        self._there: bool | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            done = await self.round()
            give_up_if_cancelled()
            await asyncio.sleep(RETRY_S if not done else INTERVAL_S / 10 if self._untold else INTERVAL_S)

    async def flush(self) -> None:
        """Writes the rest; the caller bounds the time."""
        while self._untold and await self.round():
            pass

    async def fetch(self, digests: Sequence[bytes]) -> set[bytes]:
        """For FirstSight. Raises what redis-py raises."""
        pipeline = self._reads.pipeline()
        for digest in digests:
            pipeline.get(self._prefix + digest)
        async with asyncio.timeout(FETCH_S):
            values = await pipeline.execute()
        words = [word for value in values if isinstance(value, bytes) and (word := self._word(value)) is not None]
        self._counts.heard[Peer.REDIS] += self._knowledge.absorb(words)
        return {word.digest for word in words}

    async def close(self) -> None:
        for client in (self._rounds, self._reads):
            try:
                await client.aclose()
            except Exception as error:  # it may be away
                log.debug("closing: %s", type(error).__name__)

    async def round(self) -> bool:
        """Says what is new here and hears what is new elsewhere. Whether all of it went well. After a failure it is
        tried with little first."""
        message = self._knowledge.message(None)
        try:
            async with asyncio.timeout(ROUND_S):
                if self._there is False:
                    await self._exchange(message)
                if self._untold.journal.lost:
                    self._counts.retold[Peer.REDIS] += 1
                message = self._knowledge.message(self._untold)
                await self._exchange(message)
                await self._store(message.words)
        except Exception as error:  # whatever redis-py raises: it costs the pins, and is counted
            self._untold.again(message)
            self._failed(_why(error))
            return False
        except BaseException:
            self._untold.again(message)
            raise
        self._note(there=True)
        self._counts.told[Peer.REDIS] += len(message.words)
        return True

    async def _exchange(self, message: Message) -> None:
        pipeline = self._rounds.pipeline()
        pipeline.set(self._epoch_key, secrets.token_bytes(8), nx=True)
        pipeline.get(self._epoch_key)
        pipeline.xread({self._stream: self._cursor}, MESSAGES)
        news = message.news or message.load != self._said[0]
        saying = news or time.monotonic() - self._said[1] >= QUIET_S
        if saying:
            entry = {b"s": message.sender.encode(), b"m": encode(message)}
            pipeline.xadd(self._stream, entry, maxlen=STREAM_LENGTH, approximate=True)
        _, epoch, entries, *_ = await _executed(pipeline)
        self._check_epoch(epoch)
        self._hear(entries)
        if saying:
            self._said = (list(message.load), time.monotonic())

    def _check_epoch(self, epoch: object) -> None:
        """Another epoch: the Redis was emptied, or is another one. It is told everything, and read from its start."""
        if not isinstance(epoch, bytes):
            raise MalformedMessageError("no epoch")
        if self._epoch is not None and epoch != self._epoch:
            self._cursor = BEGINNING
            self._untold.journal.restart(self._knowledge.homes.digests())
            self._counts.retold[Peer.REDIS] += 1
        self._epoch = epoch

    def _hear(self, streams: object) -> None:
        now = time.monotonic()
        # The first after a silence may be old: their homes are as good as ever, their load is not.
        fresh = now - self._heard_at < 1.0
        own = self._knowledge.name.encode()
        for entry_id, fields in _entries(streams):
            self._cursor = entry_id
            data = fields.get(b"m", b"")
            if fields.get(b"s") == own or len(data) > MAX_BYTES:
                continue
            try:
                self._counts.heard[Peer.REDIS] += self._knowledge.take_in(decode(data), load=fresh)
            except MalformedMessageError:
                self._counts.failed[Peer.REDIS, Why.NONSENSE] += 1
        self._heard_at = now

    async def _store(self, words: Sequence[Word]) -> None:
        life_ms = max(1, int(self._knowledge.homes.told_life_s * 1000))
        for i in range(0, len(words), PIPELINE):
            pipeline = self._rounds.pipeline()
            for word in words[i : i + PIPELINE]:
                if word.replica:
                    pipeline.set(self._prefix + word.digest, encode(word), px=life_ms)
                else:
                    pipeline.delete(self._prefix + word.digest)
            await _executed(pipeline)

    def _word(self, value: bytes) -> Word | None:
        try:
            return decode_word(value)
        except MalformedMessageError:
            self._counts.failed[Peer.REDIS, Why.NONSENSE] += 1
            return None

    def _failed(self, why: Why) -> None:
        self._counts.failed[Peer.REDIS, why] += 1
        self._note(there=False, why=why)

    def _note(self, *, there: bool, why: str = "") -> None:
        if there != self._there:
            self._there = there
            if there:
                log.info("Redis keeps the pins")
            else:
                log.warning("Redis does not keep the pins (%s): they are in memory only", why)


async def _executed(pipeline: Pipeline) -> list[object]:
    """All answers; raises the first that is an error, after all were read."""
    answers = await pipeline.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _entries(streams: object) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of the only stream. Raises MalformedMessageError."""
    if not streams:
        return []
    try:
        return msgspec.convert(streams, list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]])[0][1]
    except msgspec.ValidationError:
        raise MalformedMessageError("not a stream") from None


def _why(error: Exception) -> Why:
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return Why.REFUSED
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return Why.LATE
    if isinstance(error, OutOfMemoryError):
        return Why.FULL
    if isinstance(error, RedisConnectionError | OSError):
        return Why.AWAY
    return Why.NONSENSE
