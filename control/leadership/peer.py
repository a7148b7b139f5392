"""One control service among several: looks at the store they share, and takes the part that it has there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from homing.control.leadership.lease import Held, Lease, Member, Publication, Seen
from homing.control.leadership.standing import Role, Standing
from homing.control.membership import Membership
from homing.control.state import Saved
from homing.core.config import Config
from homing.core.fleet import Fleet, decode, encode

INTERVAL_S = 0.25
ROUND_S = 1.5
LEAVE_S = 0.5

log = logging.getLogger(__name__)


class Records(Protocol):
    """What they know together. Raises OSError."""

    async def load(self, take_over: Callable[[Saved], None]) -> None: ...

    async def fill(self, known: Saved) -> None: ...


@dataclass(frozen=True, slots=True)
class Knowledge:
    """How the parts of this process take over what was loaded, and give what they know; `serving`: the version of the
    fleet that is told here; `settled`: whether own probes have had their time, so that their fleet may be published."""

    take_over: Callable[[Saved], None]
    known: Callable[[], Saved]
    serving: Callable[[], str]
    settled: Callable[[], bool]


class Peer:
    """Keeps the membership in step with the others. On the loop's thread only."""

    def __init__(
        self,
        name: str,
        lease: Lease,
        records: Records,
        membership: Membership,
        knowledge: Knowledge,
        clock: Callable[[], float],
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`name` is no other process's; `clock` is monotonic."""
        self.name = name
        self.members: tuple[Member, ...] = ()
        """All of them, as the store had them last."""
        self.trouble = ""
        """Why the store does not answer; empty while it does."""
        self.terms = 0
        """How often this one has begun to lead."""
        self.failures = 0
        """Rounds that failed."""
        self._lease = lease
        self._records = records
        self._membership = membership
        self._knowledge = knowledge
        self._clock = clock
        self._interval_s = interval_s
        self._standing = Standing(clock())
        self._role = Role.FOLLOWING
        self._adopted = ""
        self._serial = ""
        self._born = ""
        self._published: Fleet | None = None
        self._file: tuple[Config, str] | None = None

    @property
    def role(self) -> Role:
        """Now: a leader that was frozen, or hears nothing of the store, leads no more."""
        return self._standing.role(self._clock())

    async def begin(self, last_good: Callable[[], Fleet | None]) -> None:
        """Returns when there is a fleet to be told or probed: the leader's, or as leader the file's; or without the
        store, after a while, that of `last_good`."""
        self._membership.adopt(Fleet())
        while True:
            await self.step()
            if self._role is Role.LEADING or self._adopted:
                return
            if self._role is Role.ALONE:
                if (fleet := last_good()) is not None:
                    log.warning("beginning with the last good fleet of this control service")
                    self._membership.go_on(fleet)
                return
            await asyncio.sleep(self._interval_s)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.step()

    async def leave(self) -> None:
        """Gives the lease up, so that another leads at once."""
        if not self._standing.token:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._lease.release(Held(self._standing.token, self.name))
        except Exception as error:  # it ends by itself
            log.info("the lease was not given up: %s", type(error).__name__)

    async def step(self) -> None:
        """One round. What fails is tried again in the next."""
        asked_s = self._clock()
        try:
            async with asyncio.timeout(ROUND_S):
                await self._round(asked_s)
        except Exception as error:  # whatever redis-py raises: this process goes on with what it knows
            self.failures += 1
            if not self.trouble:
                log.warning("the store of the control services is away (%s)", type(error).__name__)
            self.trouble = str(error) or type(error).__name__
            self._standing = self._standing.missed(asked_s)
        else:
            if self.trouble:
                log.info("the store of the control services is there again")
            self.trouble = ""
        self._assume(self.role)

    async def _round(self, asked_s: float) -> None:
        seen = await self._lease.look(self._me())
        self.members = _as_they_are(seen)
        token = 0
        if seen.held is None:
            token = await self._lease.acquire(self.name)
        elif seen.held.owner == self.name:
            token = await self._kept(seen.held)
        if token and token != self._standing.token:
            self._published = None
            await self._load(seen)  # before it decides: drains and registrations may be newer than what is known here
        self._standing = self._standing.heard(asked_s, token)
        self._assume(self.role)
        if seen.serial != self._serial or not seen.serial:
            await self._load(seen)
        if not token and seen.published and seen.published != self._adopted:
            await self._adopt(seen.published)

    async def _kept(self, held: Held) -> int:
        publication = None
        fleet = self._membership.view.fleet
        if self._role is Role.LEADING and self._knowledge.settled() and self._published is not fleet:
            publication = Publication(fleet.version, encode(fleet))
        if not await self._lease.keep(held, publication):
            return 0
        if publication is not None:
            self._published = fleet
        return held.token

    async def _load(self, seen: Seen) -> None:
        """What another has written; into an emptied store the leader writes what it knows. That may be less than is
        known here: a leader that began without the store knows of no drains."""
        if not seen.serial:
            if self._role is Role.LEADING:
                await self._records.fill(self._knowledge.known())
            return
        if self._born and seen.born != self._born:
            await self._records.fill(replace(self._knowledge.known(), audit=()))
        await self._records.load(self._knowledge.take_over)
        self._serial, self._born = seen.serial, seen.born

    async def _adopt(self, version: str) -> None:
        body = await self._lease.fleet()
        fleet = decode(body) if body is not None else None
        if fleet is not None and fleet.version == version:  # else it is replaced this moment: the next round has it
            self._membership.adopt(fleet)
            self._adopted = version

    def _assume(self, role: Role) -> None:
        if role is self._role:
            return
        self._role, self._adopted, self._published = role, "", None
        if role is Role.FOLLOWING:
            log.info("%s: follows", self.name)
            self._membership.adopt(self._membership.view.fleet)
            return
        log.warning("%s: leads" if role is Role.LEADING else "%s: decides alone, the store is away", self.name)
        self.terms += role is Role.LEADING
        self._membership.decide()

    def _me(self) -> Member:
        config = self._membership.view.config
        if self._file is None or self._file[0] is not config:
            self._file = config, config.fleet().version
        return Member(self.name, self._role, self._file[1], self._knowledge.serving())


def _as_they_are(seen: Seen) -> tuple[Member, ...]:
    """Who does not hold the lease does not lead, whatever it said last: it may be gone."""
    holder = seen.held.owner if seen.held is not None else ""
    return tuple(
        msgspec.structs.replace(member, role=Role.FOLLOWING)
        if member.role is Role.LEADING and member.name != holder
        else member
        for member in seen.members
    )
