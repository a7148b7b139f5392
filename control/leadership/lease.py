"""The lease in Redis, and what its holder writes under it: the fleet that all control services serve.

Every write of the holder is a transaction that fails unless the lease is still its own (WATCH): the store itself
refuses a leader whose time is over, whatever that one believes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from homing.control.leadership.standing import LEASE_S, Role

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.client import Pipeline

MEMBER_S = 10.0
"""A control service that was not heard of for so long is not shown any more."""


class Member(msgspec.Struct, frozen=True):
    """One control service as it tells the others of itself. `file`: the version of the fleet as its file writes it;
    `serving`: of the fleet that it tells; `at_s`: by the clock of the store, when it said so."""

    name: str
    role: Role
    file: str
    serving: str
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds the lease, and its number: each lease has a higher one than those before."""

    token: int
    owner: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The store at one moment. `serial`: of what is kept there, empty where nothing is; `born`: another one once it was
    emptied; `published`: the version of the fleet that the holder of `held` has published, empty if it has not yet."""

    held: Held | None
    serial: str
    published: str
    members: tuple[Member, ...]
    born: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    version: str
    body: bytes


class Lease:
    """Raises whatever redis-py raises; each call takes a few round trips."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._life_ms = int(LEASE_S * 1000)

    async def look(self, me: Member) -> Seen:
        """What is there; and tells the others of `me`."""
        seconds, micros = await self._redis.time()
        now = seconds + micros / 1e6
        members = self._key("members")
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(members, me.name, msgspec.json.encode(msgspec.structs.replace(me, at_s=now)))
            for name in ("lease", "serial", "published", "born"):
                pipeline.get(self._key(name))
            pipeline.hgetall(members)
            _, lease, serial, published, born, told = await pipeline.execute()
        held = _held(lease)
        token, _, version = (published or b"").decode().partition(" ")
        valid = held is not None and token == str(held.token)
        known = await self._members(told, now)
        return Seen(held, (serial or b"").decode(), version if valid else "", known, (born or b"").decode())

    async def acquire(self, owner: str) -> int:
        """The number of the new lease; 0 if another has it."""
        key = self._key("lease")
        async with self._redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(key)
            if await pipeline.get(key) is not None:
                return 0
            token = int(await pipeline.incr(self._key("term")))
            begin(pipeline)
            pipeline.set(key, f"{token} {owner}", px=self._life_ms, nx=True)
            return token if await self._done(pipeline) else 0

    async def keep(self, held: Held, publication: Publication | None) -> bool:
        """Renews it, and publishes a fleet. False, and nothing is done, if it is ours no more."""
        key = self._key("lease")
        async with self._redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(key)
            if _held(await pipeline.get(key)) != held:
                return False
            begin(pipeline)
            pipeline.set(key, f"{held.token} {held.owner}", px=self._life_ms, xx=True)
            if publication is not None:
                pipeline.set(self._key("fleet"), publication.body)
                pipeline.set(self._key("published"), f"{held.token} {publication.version}")
            return await self._done(pipeline)

    async def release(self, held: Held) -> None:
        """At once, so that nobody waits for its end."""
        key = self._key("lease")
        async with self._redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(key)
            if _held(await pipeline.get(key)) == held:
                begin(pipeline)
                pipeline.delete(key)
                await self._done(pipeline)

    async def fleet(self) -> bytes | None:
        """What was published last."""
        body = await self._redis.get(self._key("fleet"))
        return body if isinstance(body, bytes) else None

    async def _members(self, told: dict[bytes, bytes], now: float) -> tuple[Member, ...]:
        members: list[Member] = []
        for name, record in told.items():
            try:
                member = msgspec.json.decode(record, type=Member)
            except msgspec.MsgspecError:  # of a later release
                continue
            if now - member.at_s < MEMBER_S:
                members.append(member)
            else:
                await self._redis.hdel(self._key("members"), name.decode())
        return tuple(sorted(members, key=lambda member: member.name))

    @staticmethod
    async def _done(pipeline: Pipeline) -> bool:
        from redis.exceptions import WatchError  # an extra: nobody else needs it

        try:
            return bool((await pipeline.execute())[0])
        except WatchError:
            return False

    def _key(self, name: str) -> str:
        return self._prefix + name


def begin(pipeline: Pipeline) -> None:
    """What follows is done together, and only if what is watched has not changed."""
    pipeline.multi()  # type: ignore[no-untyped-call]


def _held(value: bytes | str | None) -> Held | None:
    if not isinstance(value, bytes):
        return None
    token, _, owner = value.decode().partition(" ")
    return Held(int(token), owner)
