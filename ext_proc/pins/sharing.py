"""All that a picker shares, wired: its siblings, and Redis if the file names one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute

from homing.control.secrets import SecretError, resolve
from homing.core.circuit import Circuit
from homing.core.config.models import Sessions
from homing.ext_proc.pins.counts import Peer, PinCounts, Read
from homing.ext_proc.pins.first_sight import FirstSight
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.routes import routes
from homing.ext_proc.pins.secret import VARIABLE, SharedSecret
from homing.ext_proc.pins.siblings import Sibling

if TYPE_CHECKING:
    from homing.ext_proc.pins.redis_store import RedisStore

CATCH_UP_S = 2.0
"""So long a picker that starts may wait for a sibling's table."""

SIBLING_S = 0.02
"""So long a sibling is asked for what it may have learned just now: a response that is not found is an error."""

FLUSH_S = 0.5
FAILURES = 3
OPEN_S = 1.0
"""After so many late answers in a row Redis is asked once a second, not at every first sight."""


log = logging.getLogger(__name__)


class SharingError(Exception):
    """What is to be shared cannot be. Its text is for the user, and tells no secret."""


class Sharing:
    """`first_sight` is None where there is no store to be asked."""

    def __init__(
        self,
        siblings: Sequence[str],
        secret: SharedSecret,
        knowledge: Knowledge,
        *,
        parted: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`parted`: Envoy shares the sessions out among this picker and its siblings. `tls`: None where those speak
        plain text. Raises SharingError."""
        if siblings and not secret.shared:
            raise SharingError(f"siblings need a secret that they share: sessions.secret in the file, or {VARIABLE}")
        self.counts = PinCounts()
        self._secret = secret
        self._knowledge = knowledge
        token = secret.token()
        self._siblings = [Sibling(address, token, self._knowledge, self.counts, tls) for address in siblings]
        self._store: RedisStore | None = None
        self._first_sight: FirstSight | None = None
        count = partial(self._count, Peer.SIBLING)
        self._asked = [
            FirstSight(each.ask, count, Circuit(FAILURES, OPEN_S), SIBLING_S) for each in self._siblings if parted
        ]

    def keep_in_redis(self, url: str) -> None:
        """Raises SharingError."""
        try:
            from homing.ext_proc.pins.redis_store import RedisStore
            from homing.ext_proc.pins.redis_url import RedisUrlError, client
        except ImportError:
            raise SharingError("sessions.pins: the package redis is not there: pip install 'homing[redis]'") from None
        try:
            clients = client(url), client(url)
        except RedisUrlError as error:
            raise SharingError(f"sessions.pins: {error}") from None
        store = RedisStore(*clients, self._knowledge, self.counts, self._secret.namespace())
        self._store = store
        self._first_sight = FirstSight(store.fetch, partial(self._count, Peer.REDIS), Circuit(FAILURES, OPEN_S))

    @property
    def shares(self) -> bool:
        """Whether the table is that of other pickers too."""
        return bool(self._siblings) or self._store is not None

    @property
    def first_sight(self) -> Callable[[bytes], Awaitable[object] | None] | None:
        return self._first_sight.read if self._first_sight is not None else None

    @property
    def first_sight_of_anyones(self) -> Callable[[bytes], Awaitable[object] | None] | None:
        """Asks the siblings too: what a body or a path names comes to any of them."""
        asked = [each.read for each in self._first_sights()]
        return partial(_all, asked) if len(asked) > 1 else asked[0] if asked else None

    def _first_sights(self) -> list[FirstSight]:
        return self._asked if self._first_sight is None else [self._first_sight, *self._asked]

    def routes(self) -> Sequence[BaseRoute]:
        return routes(self._knowledge, self.counts, self._secret.token()) if self._secret.shared else ()

    async def catch_up(self) -> None:
        """The table of the first sibling that has one to give, in bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                for sibling in self._siblings:
                    if await sibling.pull() and len(self._knowledge.homes) > 0:
                        return

    async def run(self) -> None:
        """Until cancelled; then what is not yet told is told, in bounded time."""
        if not self.shares:
            log.info("pins are this picker's alone: a restart forgets them (docs/sharing.md)")
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in self._work():
                    tasks.create_task(_kept(work))
        finally:
            await self._end()

    def _work(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        work = [sibling.run for sibling in self._siblings]
        if self._store is not None:
            work.append(self._store.run)
        return work + [each.run for each in self._first_sights()]

    async def _end(self) -> None:
        told: list[Sibling | RedisStore] = [*self._siblings]
        if self._store is not None:
            told.append(self._store)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await asyncio.gather(*(each.flush() for each in told), return_exceptions=True)
        for each in told:
            await each.close()

    def _count(self, peer: Peer, outcome: Read) -> None:
        self.counts.read[peer, outcome] += 1


def _all(asked: Sequence[Callable[[bytes], Awaitable[object] | None]], digest: bytes) -> Awaitable[object] | None:
    waits = [wait for read in asked if (wait := read(digest)) is not None]
    return asyncio.gather(*waits) if waits else None


async def _kept(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Whatever goes wrong in sharing must not end the picker."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("sharing failed, and goes on in a second")
            await asyncio.sleep(1.0)


def shared_secret(sessions: Sessions, file: Path) -> SharedSecret:
    """Raises SharingError."""
    try:
        return SharedSecret.of(sessions.secret, file, os.environ)
    except SecretError as error:
        raise SharingError(f"sessions.secret: {error}") from None


def pins_url(sessions: Sessions, file: Path) -> str | None:
    """None where homes are kept in memory only. Raises SharingError."""
    if isinstance(sessions.pins, str):
        return None if sessions.pins == "memory" else sessions.pins
    try:
        return resolve(sessions.pins, file, os.environ).decode()
    except (SecretError, UnicodeDecodeError) as error:
        why = error if isinstance(error, SecretError) else f"{sessions.pins}: not UTF-8"
        raise SharingError(f"sessions.pins: {why}") from None
