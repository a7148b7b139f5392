"""Replicas that register themselves by the API, and say again and again that they are there.

One whose word is overdue leaves when its probes fail too: if all of them fall silent at once, the way here is broken,
not the engines. Without a TTL a registration stays until it is taken back. Where the file allows none any more
(`discovery.api`), those that there are do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from homing.control.latest import Latest
from homing.control.leadership.standing import Role
from homing.control.membership import Membership
from homing.core.config import Address
from homing.core.fleet import Replica, State, ranked
from homing.core.placement.load import Place

log = logging.getLogger(__name__)

SOURCE = "api"
CHECK_S = 1.0
MAX_REGISTRATIONS = 10_000


@dataclass(frozen=True, slots=True)
class Registration:
    """One engine as it registered itself. `ttl_s`: it says so again within that time; None: once is enough. `dp_size`:
    its data-parallel ranks, each of which is a replica. `secure`: it speaks TLS."""

    pool: str
    replica: str
    address: str
    weight: int
    ttl_s: float | None
    dp_size: int = 1
    secure: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError: what a damaged store says is not to reach the fleet."""
        Address.parse(self.address)

    @property
    def place(self) -> Place:
        return self.pool, self.replica

    @property
    def replicas(self) -> tuple[Replica, ...]:
        ranks = range(self.dp_size) if self.dp_size > 1 else (None,)
        named = ((ranked(self.replica, rank), rank) for rank in ranks)
        tls = Address.parse(self.address).host if self.secure else ""
        return tuple(
            Replica(name, self.address, self.weight, State.JOINING, False, rank=rank, tls=tls) for name, rank in named
        )


class TooManyError(Exception):
    """More than MAX_REGISTRATIONS."""


class Store(Protocol):
    """Where registrations survive a restart. Raises OSError."""

    async def put_registration(self, registration: Registration) -> None: ...

    async def remove_registration(self, place: Place) -> None: ...

    async def note_heard(self, place: Place, ttl_s: float) -> None: ...

    async def heard(self, places: Sequence[Place]) -> frozenset[Place]: ...


class Registrations:
    """Owns them, and reports them to the membership. On the loop's thread only."""

    def __init__(
        self, membership: Membership, store: Store, clock: Callable[[], float], check_s: float = CHECK_S
    ) -> None:
        """`clock` is monotonic."""
        self._membership = membership
        self._store = store
        self._clock = clock
        self._check_s = check_s
        self._all: Latest[dict[Place, Registration]] = Latest({})
        self._heard: dict[Place, float] = {}

    def get(self, place: Place) -> Registration | None:
        return self._all.value.get(place)

    @property
    def all(self) -> tuple[Registration, ...]:
        return tuple(self._all.value.values())

    def restore(self, registrations: Iterable[Registration]) -> None:
        """What an earlier process knew, or another one; one that is new here has its whole TTL to be heard of."""
        before, now = self._all.value, self._clock()
        found = {registration.place: registration for registration in registrations}
        self._heard = {p: self._heard[p] if before.get(p) == r else now for p, r in found.items()}
        self._set(found)

    async def put(self, registration: Registration) -> bool:
        """Registers, or notes that it is still there. Whether anything is new. Raises TooManyError."""
        place = registration.place
        new = self.get(place) != registration
        if new:
            if place not in self._all.value and len(self._all.value) >= MAX_REGISTRATIONS:
                raise TooManyError
            await self._store.put_registration(registration)
        self._heard[place] = self._clock()
        if registration.ttl_s is not None:
            with contextlib.suppress(OSError):  # nobody leaves while what was heard elsewhere is not known
                await self._store.note_heard(place, registration.ttl_s)
        if new:
            self._set({**self._all.value, place: registration})
            log.info("replica %s of pool %s registered at %s", place[1], place[0], registration.address)
        return new

    async def remove(self, place: Place) -> bool:
        """Whether it was there."""
        if place not in self._all.value:
            return False
        await self._store.remove_registration(place)
        self._heard.pop(place, None)
        self._set({p: r for p, r in self._all.value.items() if p != place})
        log.info("replica %s of pool %s is registered no more", place[1], place[0])
        return True

    async def run(self) -> None:
        """Until cancelled: who is overdue and unwell leaves, and so does who may not register by the file any more."""
        while True:
            await asyncio.sleep(self._check_s)
            self._report({place[0] for place in self._all.value})
            if self._membership.role() is Role.LEADING:
                await self._let_go(self._overdue())

    async def _let_go(self, overdue: Sequence[Place]) -> None:
        try:
            heard = await self._store.heard(overdue)
            for place in overdue:
                if place not in heard and not self._answers(place):
                    await self.remove(place)
        except OSError as error:
            log.error("a registration that is over cannot be removed: %s", error)

    def _overdue(self) -> list[Place]:
        now = self._clock()
        return [p for p, r in self._all.value.items() if r.ttl_s is not None and now - self._heard[p] > r.ttl_s]

    def _answers(self, place: Place) -> bool:
        pool, registration = self._membership.view.fleet.pool(place[0]), self.get(place)
        if pool is None or registration is None:
            return False
        known = (pool.replica(each.id) for each in registration.replicas)
        return any(replica is not None and replica.healthy for replica in known)

    def _set(self, registrations: dict[Place, Registration]) -> None:
        before = {place[0] for place in self._all.value}
        self._all.set(registrations)
        self._report(before | {place[0] for place in registrations})

    def _report(self, pool_ids: Iterable[str]) -> None:
        pools = self._membership.view.config.pools
        allowed = {pool.id for pool in pools if pool.discovery is not None and pool.discovery.api}
        for pool_id in sorted(pool_ids):
            mine = (r for r in self._all.value.values() if r.pool == pool_id and pool_id in allowed)
            self._membership.report(SOURCE, pool_id, tuple(replica for r in mine for replica in r.replicas))
