"""Draining: a replica takes no new sessions, and leaves when nothing is left there or its time is over.

Every drain ends. One that ended stays, and keeps the replica away, until it is taken back (`undrain`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from homing.control.census import Left
from homing.control.latest import Latest
from homing.control.leadership.standing import Role
from homing.control.membership import Membership, places
from homing.core.placement.load import Place

log = logging.getLogger(__name__)

INTERVAL_S = 0.5
FORGOTTEN_AFTER_S = 86_400.0
"""So long a drain is kept whose replica no source reports any more: names of pods do not come back."""

MAX_DRAINS = 10_000

Why = Literal["idle", "deadline"]
Ask = Callable[[], Awaitable[Mapping[Place, Left]]]


@dataclass(frozen=True, slots=True)
class Drain:
    """One replica's. Times in seconds since 1970. `why` it ended and with how many `sessions` still there: these move
    with their next turn. `ended_s` is None until it has."""

    pool: str
    replica: str
    since_s: float
    deadline_s: float
    ended_s: float | None = None
    why: Why | None = None
    sessions: int | None = None

    @property
    def place(self) -> Place:
        return self.pool, self.replica


class TooManyDrainsError(Exception):
    """More than MAX_DRAINS replicas are drained."""


class Store(Protocol):
    """Where drains survive a restart. Raises OSError for what it cannot keep."""

    async def put_drain(self, drain: Drain) -> None: ...

    async def end_drain(self, before: Drain, ended: Drain) -> bool: ...

    async def remove_drain(self, place: Place) -> None: ...


class Drains:
    """Owns all drains of this control service, and tells the membership. On the loop's thread only."""

    def __init__(
        self,
        membership: Membership,
        ask: Ask,
        store: Store,
        now_s: Callable[[], float],
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`now_s`: seconds since 1970, since deadlines outlive the process. Drains end where the membership is decided
        about."""
        self.left: Mapping[Place, Left] = {}
        """The newest census, while anything drains."""
        self._membership = membership
        self._ask = ask
        self._store = store
        self._now_s = now_s
        self._interval_s = interval_s
        self._drains: Latest[dict[Place, Drain]] = Latest({})

    @property
    def all(self) -> tuple[Drain, ...]:
        """Also those that have ended, the oldest first."""
        return tuple(sorted(self._drains.value.values(), key=lambda drain: drain.since_s))

    def get(self, place: Place) -> Drain | None:
        return self._drains.value.get(place)

    def restore(self, drains: tuple[Drain, ...]) -> None:
        """What an earlier process knew."""
        self._set({drain.place: drain for drain in drains})

    async def drain(self, place: Place, for_s: float) -> Drain:
        """Begins, or gives a running one another deadline. One that has ended stays as it is.
        Raises TooManyDrainsError."""
        before, now = self.get(place), self._now_s()
        if before is not None and before.ended_s is not None:
            return before
        if before is None and len(self._drains.value) >= MAX_DRAINS:
            raise TooManyDrainsError
        drain = Drain(*place, before.since_s if before else now, now + for_s)
        await self._store.put_drain(drain)
        self._set({**self._drains.value, place: drain})
        log.info("replica %s of pool %s drains, %.0f s at most", drain.replica, drain.pool, for_s)
        return drain

    async def undrain(self, place: Place) -> bool:
        """The replica takes new sessions again; one that had left comes back when its probes succeed. False if it does
        not drain."""
        if place not in self._drains.value:
            return False
        await self._store.remove_drain(place)
        self._set({p: d for p, d in self._drains.value.items() if p != place})
        log.info("replica %s of pool %s drains no more", place[1], place[0])
        return True

    async def look(self, place: Place) -> None:
        """What is left there is known when this returns, if the pickers answer."""
        if place not in self.left:
            self.left = await self._ask()

    async def wait(self, place: Place, timeout_s: float) -> Drain | None:
        """The drain once it has ended, or as it is after `timeout_s`; None if it was taken back."""
        try:
            async with asyncio.timeout(timeout_s):
                while (drain := self.get(place)) is not None and drain.ended_s is None:
                    await self._drains.after(self._drains.serial)
        except TimeoutError:
            pass
        return self.get(place)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            serial = self._drains.serial
            if any(drain.ended_s is None for drain in self._drains.value.values()):
                await self._end_those_that_can()
                await asyncio.sleep(self._interval_s)
            else:
                self.left = {}
                await self._forget()
                await self._drains.after(serial)

    async def _end_those_that_can(self) -> None:
        self.left = await self._ask()
        if self._membership.role() is Role.FOLLOWING:
            return
        now = self._now_s()
        for drain in self.all:
            if drain.ended_s is not None:
                continue
            left = self.left.get(drain.place)
            if left is not None and left.nothing:
                await self._end(drain, "idle", left, now)
            elif now >= drain.deadline_s:
                await self._end(drain, "deadline", left, now)

    async def _end(self, drain: Drain, why: Why, left: Left | None, now: float) -> None:
        if self.get(drain.place) != drain:  # taken back, or prolonged, while the pickers were asked
            return
        sessions = left.sessions if left else None
        ended = Drain(*drain.place, drain.since_s, drain.deadline_s, now, why, sessions)
        try:
            if not await self._store.end_drain(drain, ended):
                return
        except OSError as error:  # a full disk must not keep the replica from leaving
            log.error("the end of a drain will not survive a restart: %s", error)
        self._set({**self._drains.value, drain.place: ended})
        here = "an unknown number of" if sessions is None else sessions
        log.info("replica %s of pool %s leaves (%s; %s sessions move)", drain.replica, drain.pool, why, here)

    async def _forget(self) -> None:
        if self._membership.role() is not Role.LEADING:
            return
        known, since = places(self._membership.written), self._now_s() - FORGOTTEN_AFTER_S
        for drain in self.all:
            if drain.place not in known and (drain.ended_s or drain.since_s) < since:
                with contextlib.suppress(OSError):
                    await self.undrain(drain.place)

    def _set(self, drains: dict[Place, Drain]) -> None:
        self._drains.set(drains)
        draining = frozenset(place for place, drain in drains.items() if drain.ended_s is None)
        self._membership.set_drains(draining, frozenset(drains) - draining)
