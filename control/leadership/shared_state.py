"""What several control services know together, in Redis: the same records as in one service's own file (`state`).

Any of them writes; each reads all of it again when the serial has changed. A Redis that was emptied has no serial:
nobody believes that, and the leader writes it again from its memory; whoever sees that adds what only it knew.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from homing.control.audit import Entry
from homing.control.discovery.source import Found
from homing.control.discovery.sources import Key
from homing.control.drains import Drain
from homing.control.leadership.lease import begin
from homing.control.policies import MAX_KEPT
from homing.control.registrations import Registration
from homing.control.state import LastFound, Proved, Saved, StateError
from homing.core.placement.load import Place
from homing.core.policy import Policy

WRITE_S = 2.0
MAX_AUDIT = 1000
"""Entries of the audit log that are kept."""

T = TypeVar("T")
Command = Callable[[Pipeline], object]
"""Puts one command into a pipeline of redis-py."""


class SharedState:
    """Every write is in Redis when it returns; they raise StateError, and then it may be there or not."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._turn = asyncio.Lock()  # what is read and taken over is never older than what was written here

    async def close(self) -> None:
        try:
            await self._redis.aclose()
        except Exception:  # it may be away
            return

    async def put_drain(self, drain: Drain) -> None:
        await self._put("drains", drain.place, drain)

    async def end_drain(self, before: Drain, ended: Drain) -> bool:
        """False if it is not what it was before: taken back, or prolonged, by another control service."""
        key, field = self._key("drains"), _field(before.place)

        async def exchange() -> bool:
            async with self._redis.pipeline(transaction=True) as pipeline:
                await pipeline.watch(key)
                if _decoded(await pipeline.hget(key, field), Drain) != before:
                    return False
                begin(pipeline)
                pipeline.hset(key, field, msgspec.json.encode(ended))
                self._tell(pipeline)
                try:
                    await pipeline.execute()
                except WatchError:
                    return False
                return True

        return await self._bounded(exchange)

    async def remove_drain(self, place: Place) -> None:
        await self._write(lambda p: p.hdel(self._key("drains"), _field(place)))

    async def put_registration(self, registration: Registration) -> None:
        await self._put("registrations", registration.place, registration)

    async def remove_registration(self, place: Place) -> None:
        await self._write(lambda p: p.hdel(self._key("registrations"), _field(place)))

    async def note_heard(self, place: Place, ttl_s: float) -> None:
        await self._write(lambda p: p.set(self._heard(place), b"1", px=max(1, int(ttl_s * 1000))), news=False)

    async def heard(self, places: Sequence[Place]) -> frozenset[Place]:
        """Those that were heard of within their time, by any control service."""

        async def ask() -> frozenset[Place]:
            found = await self._redis.mget([self._heard(place) for place in places])
            return frozenset(place for place, value in zip(places, found, strict=True) if value is not None)

        return await self._bounded(ask) if places else frozenset()

    async def put_found(self, key: Key, found: tuple[Found, ...]) -> None:
        await self._put("found", key, LastFound(key, found), news=False)

    async def put_proved(self, place: Place, epoch: int) -> None:
        await self._put("proved", place, Proved(place, epoch), news=False)

    async def put_policy(self, policy: Policy) -> bool:
        """False if another has written one of that version. The oldest of more than MAX_KEPT leave."""
        key = self._key("policies")

        async def add() -> bool:
            if not await self._redis.hsetnx(key, str(policy.version), msgspec.json.encode(policy)):
                return False
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.hdel(key, str(policy.version - MAX_KEPT))
                self._tell(pipeline)
                await pipeline.execute()
            return True

        return await self._bounded(add)

    async def put_audit(self, entry: Entry) -> None:
        """The oldest of more than MAX_AUDIT leave."""
        await self._write(*self._audit((entry,)))

    async def load(self, take_over: Callable[[Saved], None]) -> None:
        """Gives all that is there to `take_over`. A record that is none is left out."""

        async def read() -> None:
            async with self._redis.pipeline(transaction=True) as pipeline:
                for table in ("drains", "registrations", "found", "proved", "policies"):
                    pipeline.hgetall(self._key(table))
                pipeline.lrange(self._key("audit"), -MAX_AUDIT, -1)
                drains, registrations, found, proved, policies, audit = await pipeline.execute()
            take_over(
                Saved(
                    _records(drains.values(), Drain),
                    _records(registrations.values(), Registration),
                    _records(found.values(), LastFound),
                    _records(proved.values(), Proved),
                    _records(audit, Entry),
                    _records(policies.values(), Policy),
                )
            )

        await self._bounded(read)

    async def fill(self, known: Saved) -> None:
        """Writes what is known here into a Redis that holds nothing, beside what others write meanwhile."""
        commands: list[Command] = []
        keyed: dict[str, Iterable[tuple[tuple[str, str], object]]] = {
            "drains": [(each.place, each) for each in known.drains],
            "registrations": [(each.place, each) for each in known.registrations],
            "found": [(each.key, each) for each in known.found],
            "proved": [(each.place, each) for each in known.proved],
        }
        for table, records in keyed.items():
            mapping = {_field(key): msgspec.json.encode(record) for key, record in records}
            if mapping:
                commands.append(partial(_put_all, self._key(table), mapping))
        policies = {str(policy.version): msgspec.json.encode(policy) for policy in known.policies}
        if policies:
            commands.append(partial(_put_all, self._key("policies"), policies))
        commands += self._audit(known.audit)
        commands.append(lambda p: p.set(self._key("born"), secrets.token_hex(8), nx=True))
        commands.append(lambda p: p.set(self._key("serial"), secrets.token_hex(8)))
        await self._write(*commands, news=False)

    def _audit(self, entries: Sequence[Entry]) -> tuple[Command, ...]:
        if not entries:
            return ()
        records = [msgspec.json.encode(entry) for entry in entries]
        key = self._key("audit")
        return (lambda p: p.rpush(key, *records), lambda p: p.ltrim(key, -MAX_AUDIT, -1))

    async def _put(self, table: str, key: tuple[str, str], record: object, *, news: bool = True) -> None:
        data = msgspec.json.encode(record)
        await self._write(lambda p: p.hset(self._key(table), _field(key), data), news=news)

    async def _write(self, *commands: Command, news: bool = True) -> None:
        async def write() -> None:
            async with self._redis.pipeline(transaction=True) as pipeline:
                for command in commands:
                    command(pipeline)
                if news:
                    self._tell(pipeline)
                await pipeline.execute()

        await self._bounded(write)

    def _tell(self, pipeline: Pipeline) -> None:
        """There is something new to be read; not in a Redis that was emptied, which is filled first."""
        pipeline.set(self._key("serial"), secrets.token_hex(8), xx=True)

    async def _bounded(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(WRITE_S), self._turn:
                return await work()
        except Exception as error:  # whatever redis-py raises: it is not there, full, read-only, or talks nonsense
            why = str(error) or type(error).__name__
            raise StateError(f"the state that the control services share cannot be had: {why}") from error

    def _heard(self, place: Place) -> str:
        return self._key("heard:") + _field(place)

    def _key(self, name: str) -> str:
        return self._prefix + name


def _put_all(key: str, records: Mapping[str, bytes], pipeline: Pipeline) -> None:
    pipeline.hset(key, mapping=dict(records))  # type: ignore[arg-type]


def _field(key: tuple[str, str]) -> str:
    """Neither ids of pools nor of kinds have a slash."""
    return "/".join(key)


def _records(values: Iterable[bytes], of: type[T]) -> tuple[T, ...]:
    """In the order of what they say, so that every control service has them in the same."""
    found = (_decoded(value, of) for value in (values if isinstance(values, list) else sorted(values)))
    return tuple(record for record in found if record is not None)


def _decoded(value: bytes | str | None, of: type[T]) -> T | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=of)
    except (msgspec.MsgspecError, TypeError):
        return None
