"""What has to be read before a request is placed: what this picker has not seen, and others may know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from homing.core.placement.home import Placer
from homing.core.placement.pools import CompiledPool
from homing.core.session import SessionKey

FirstSight = Callable[[bytes], Awaitable[object] | None]
"""Has the home of a digest read; None when that is not worth asking. What is awaited never raises, and is bounded."""


class Unread:
    """`mine`: asks those who may know a session that Envoy's sharing out has led to this picker. `anyones`: those who
    may know what Envoy does not share out by, since only a body or a path names it: siblings have been told of it a
    moment ago, or are about to be. None where there is nobody to ask."""

    __slots__ = ("_clock", "_placer", "anyones", "mine")

    def __init__(self, placer: Placer, clock: Callable[[], float]) -> None:
        self._placer = placer
        self._clock = clock
        self.mine: FirstSight | None = None
        self.anyones: FirstSight | None = None

    def of_headers(self, pool: CompiledPool, key: SessionKey) -> Awaitable[object] | None:
        return self._reading(self.mine, (pool,), (key,))

    def of_body(self, pool: CompiledPool, keys: Sequence[SessionKey]) -> Awaitable[object] | None:
        return self._reading(self.anyones, (pool,), keys)

    def of_path(self, pools: Iterable[CompiledPool], keys: Sequence[SessionKey]) -> Awaitable[object] | None:
        return self._reading(self.anyones, pools, keys)

    def _reading(
        self, ask: FirstSight | None, pools: Iterable[CompiledPool], keys: Sequence[SessionKey]
    ) -> Awaitable[object] | None:
        """Nothing where one of `pools` knows the first of `keys`."""
        if ask is None:
            return None
        now, digests = self._clock(), []
        for pool in pools:
            if self._placer.unknown(pool, keys[0], now) is None:
                return None
            digests += [digest for key in keys if (digest := self._placer.unknown(pool, key, now)) is not None]
        waits = [wait for digest in digests if (wait := ask(digest)) is not None]
        return waits[0] if len(waits) == 1 else asyncio.gather(*waits) if waits else None
