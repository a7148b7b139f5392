"""Sessions' system texts in Redis, encrypted: a picker that takes a session over knows what the session had said.

Written every 100 ms, read when a session is seen for the first time. What fails costs the look at one turn's system
text and nothing else. Redis sees digests of sessions and ciphertext.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from cryptography.fernet import Fernet, InvalidToken

from homing.core.circuit import Circuit
from homing.core.context.kept import MalformedError, pack, unpack
from homing.core.context.lost import Sessions
from homing.ext_proc.pins.counts import Read
from homing.ext_proc.pins.first_sight import FirstSight, give_up_if_cancelled
from homing.ext_proc.pins.redis_url import Client

INTERVAL_S = 0.1
ROUND_S = 2.0
FETCH_S = 0.25
FLUSH_S = 0.5
PIPELINE = 50
FAILURES = 3
OPEN_S = 1.0


class TextStore:
    """`sessions` is the picker's table; its changes are told from the store's making on. `key`: 32 bytes."""

    def __init__(
        self,
        writes: Client,
        reads: Client,
        sessions: Sessions,
        key: bytes,
        namespace: str,
        clock: Callable[[], float],
        count: Callable[[Read], None],
    ) -> None:
        self._writes, self._reads = writes, reads
        self._sessions = sessions
        self._changes = sessions.changes()
        self._fernet = Fernet(base64.urlsafe_b64encode(key))
        self._prefix = f"homing:{namespace}:said:".encode()
        self._clock = clock
        self._first_sight = FirstSight(self.fetch, count, Circuit(FAILURES, OPEN_S))

    def read(self, digest: bytes) -> Awaitable[object] | None:
        """Something to await that is over in 5 ms and never raises; None when it is not worth asking."""
        return self._first_sight.read(digest)

    async def run(self) -> None:
        """Until cancelled; then what is not yet written is, in bounded time."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._connect())
                tasks.create_task(self._first_sight.run())
                tasks.create_task(self._write_on())
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    while await self.write():
                        pass
            for client in (self._writes, self._reads):
                with contextlib.suppress(Exception):  # it may be away
                    await client.aclose()

    async def write(self) -> bool:
        """A part of what has changed. Whether there was any, and it was taken; what was not is dropped, since the
        session's next turn tells it again."""
        pipeline = self._writes.pipeline()
        part = [self._changes.popitem() for _ in range(min(PIPELINE, len(self._changes)))]
        for digest, threads in part:
            name = self._prefix + digest
            if threads:
                pipeline.set(name, self._fernet.encrypt(pack(threads)), px=max(1, int(self._sessions.ttl_s * 1000)))
            else:
                pipeline.delete(name)
        if not part:
            return False
        try:
            async with asyncio.timeout(ROUND_S):
                await pipeline.execute()
        except Exception:  # whatever redis-py raises
            return False
        return True

    async def fetch(self, digests: Sequence[bytes]) -> set[bytes]:
        """For FirstSight. Raises what redis-py raises."""
        pipeline = self._reads.pipeline()
        for digest in digests:
            pipeline.get(self._prefix + digest)
        async with asyncio.timeout(FETCH_S):
            values = await pipeline.execute()
        found = set()
        for digest, value in zip(digests, values, strict=True):
            if isinstance(value, bytes) and self._taken_in(digest, value):
                found.add(digest)
        return found

    def _taken_in(self, digest: bytes, value: bytes) -> bool:
        """What cannot be read was written with another secret or version, or is not ours."""
        try:
            threads = unpack(self._fernet.decrypt(value))
        except (InvalidToken, MalformedError):
            return False
        self._sessions.absorb(digest, threads, self._clock())
        return True

    async def _connect(self) -> None:
        """So that the first session does not wait for that."""
        with contextlib.suppress(Exception):
            await self.fetch([b""])

    async def _write_on(self) -> None:
        while True:
            while await self.write():
                pass
            give_up_if_cancelled()
            await asyncio.sleep(INTERVAL_S)
