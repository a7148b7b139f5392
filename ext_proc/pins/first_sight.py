"""A session that is seen here for the first time may be known to Redis: asked before it is placed, for 5 ms at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from homing.core.circuit import Circuit
from homing.ext_proc.pins.counts import Read

LIMIT_S = 0.005
BATCH = 100
MAX_WAITING = 10_000

Fetch = Callable[[Sequence[bytes]], Awaitable[set[bytes]]]
"""Takes the homes of these digests in, as far as they are known; which were. May raise whatever a client raises."""


def give_up_if_cancelled() -> None:
    """redis-py may make another error of a cancellation that comes while it reads; who took that for a failure of Redis
    would wait for ever. Raises CancelledError."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class FirstSight:
    """Questions that come together are asked together. What comes too late is taken in all the same.

    Whoever asks gets something to await that never raises and is over after `limit_s`.
    """

    def __init__(self, fetch: Fetch, count: Callable[[Read], None], circuit: Circuit, limit_s: float = LIMIT_S) -> None:
        self._fetch = fetch
        self._count = count
        self._circuit = circuit
        self._limit_s = limit_s
        self._waiting: dict[bytes, list[asyncio.Future[None]]] = {}
        self._asked = asyncio.Event()

    def read(self, digest: bytes) -> Awaitable[object] | None:
        """None when it is not worth asking."""
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= MAX_WAITING or not self._circuit.allows(loop.time()):
            self._count(Read.SKIPPED)
            return None
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(digest, []).append(future)
        timer = loop.call_later(self._limit_s, self._late, digest, future)
        future.add_done_callback(lambda _: timer.cancel())
        self._asked.set()
        return future

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while digests := [*self._waiting][:BATCH]:
                await self._ask({digest: self._waiting.pop(digest) for digest in digests})
                give_up_if_cancelled()

    async def _ask(self, batch: dict[bytes, list[asyncio.Future[None]]]) -> None:
        try:
            found = await self._fetch([*batch])
        except Exception:  # whatever a client raises: the hash decides
            found = None
        loop = asyncio.get_running_loop()
        if any(not future.done() for futures in batch.values() for future in futures):  # so it came in time
            if found is None:
                self._circuit.failed(loop.time())
            else:
                self._circuit.succeeded()
        for digest, futures in batch.items():
            for future in futures:
                if not future.done():
                    future.set_result(None)
                    self._count(Read.FAILED if found is None else Read.FOUND if digest in found else Read.ABSENT)

    def _late(self, digest: bytes, future: asyncio.Future[None]) -> None:
        if future.done():
            return
        future.set_result(None)
        self._count(Read.LATE)
        self._circuit.failed(asyncio.get_running_loop().time())
        waiting = self._waiting.get(digest)  # still in the queue: nobody needs the answer any more
        if waiting is not None and all(each.done() for each in waiting):
            del self._waiting[digest]
