"""Replicas that are listed by a name, in the file or elsewhere: resolved here, as Envoy takes only addresses by EDS."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from homing.control.membership import Membership
from homing.core.config import Address
from homing.core.fleet import AddressResolved, Event, Fleet

log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name (name, port), the preferred first. Raises OSError."""

INTERVAL_S = 5.0
TIMEOUT_S = 3.0


async def resolve(host: str, port: int) -> Sequence[str]:
    """The system's resolver; IPv4 before IPv6, as Envoy's clusters do here (`V4_PREFERRED`). Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for family, *_, sockaddr in sorted(found, key=lambda each: each[0] != socket.AF_INET)]


@dataclass(frozen=True, slots=True)
class Name:
    """A replica whose address is written as a host name."""

    pool_id: str
    replica_id: str
    address: Address


class StaticDiscovery:
    """Keeps the addresses of named replicas up to date. A name that fails to resolve keeps its last address."""

    def __init__(self, membership: Membership, resolve: Resolve = resolve, interval_s: float = INTERVAL_S) -> None:
        self.first_round = asyncio.Event()
        self.failures: Counter[str] = Counter()
        """Failed resolutions since the start, by pool."""
        self._membership = membership
        self._resolve = resolve
        self._interval_s = interval_s
        self._failing: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            written = self._membership.written
            await self._round(names(written))
            self.first_round.set()
            await self._next(written)

    async def _round(self, named: Sequence[Name]) -> None:
        addresses = {name.address for name in named}
        self._failing &= {a.host for a in addresses}
        async with asyncio.TaskGroup() as tasks:
            asked = {a: tasks.create_task(self._ask(a)) for a in addresses}
        found = {address: task.result() for address, task in asked.items()}
        for name in named:
            if not found[name.address]:
                self.failures[name.pool_id] += 1
        self._membership.apply(*_resolved(self._membership.view.fleet, named, found))

    async def _ask(self, address: Address) -> Sequence[str]:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = [host for host in await self._resolve(address.host, address.port) if _usable(host)]
        except (OSError, UnicodeError) as e:  # UnicodeError: a label too long for IDNA; TimeoutError is an OSError
            found, reason = [], str(e) or "no answer in time"
        else:
            reason = "no usable address"
        if found:
            self._failing.discard(address.host)
        elif address.host not in self._failing:
            self._failing.add(address.host)
            log.warning("%s does not resolve (%s); its last address stays", address.host, reason)
        return found

    async def _next(self, written: Fleet) -> None:
        """Returns when it is time again, or at once when other replicas are written."""
        views = self._membership.views
        try:
            async with asyncio.timeout(self._interval_s):
                while self._membership.written is written:
                    await views.after(views.serial)
        except TimeoutError:
            return


def names(written: Fleet) -> tuple[Name, ...]:
    """Those of its replicas whose address is a host name."""
    addresses = ((pool.id, r.id, Address.parse(r.address)) for pool in written.pools for r in pool.replicas)
    return tuple(Name(*each) for each in addresses if each[2].ip is None)


def _resolved(fleet: Fleet, named: Iterable[Name], found: dict[Address, Sequence[str]]) -> Iterable[Event]:
    for name in named:
        pool = fleet.pool(name.pool_id)
        replica = pool.replica(name.replica_id) if pool else None
        hosts = [str(Address(host, name.address.port)) for host in found[name.address]]
        # Of several addresses the one in use is kept: resolvers change their order with every answer.
        if replica is not None and hosts and replica.address not in hosts:
            yield AddressResolved(name.pool_id, name.replica_id, hosts[0])


def _usable(host: str) -> bool:
    return "%" not in host and not ip_address(host).is_unspecified
