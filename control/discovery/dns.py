"""Replicas behind a name: A or AAAA records with one port, or SRV records. Asked again when their TTL is over.

With A and AAAA a replica's id is its address; with SRV it is the target's name and port, which stay when a pod gets
another address (a StatefulSet's headless service). A name with A records is not asked for AAAA: the same engines would
be there twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from homing.control.discovery.source import Found, SourceError
from homing.core.config import Address

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver
    from dns.rrset import RRset

TIMEOUT_S = 3.0
MIN_TTL_S = 1.0
MAX_TTL_S = 30.0


def system_resolver() -> Resolver:
    """As /etc/resolv.conf says. Raises SourceError."""
    try:
        from dns.asyncresolver import Resolver
        from dns.resolver import NoResolverConfiguration
    except ImportError:
        raise SourceError("discovery by DNS needs the extra: pip install 'homing[dns]'") from None
    try:
        return Resolver()
    except NoResolverConfiguration as error:
        raise SourceError(f"no name server is configured: {error}") from None


class DnsSource:
    """`name` as in the file: host:port, or _service._proto.host."""

    def __init__(self, name: str, resolver: Resolver | None = None, min_ttl_s: float = MIN_TTL_S) -> None:
        self._name = name
        self._resolver = resolver
        self._min_ttl_s = min_ttl_s

    async def follow(self) -> AsyncIterator[tuple[Found, ...]]:
        resolver = self._resolver or system_resolver()
        while True:
            found, ttl_s = await (self._services(resolver) if self._name.startswith("_") else self._hosts(resolver))
            yield tuple(sorted(found, key=lambda each: each.id))
            await asyncio.sleep(min(max(ttl_s, self._min_ttl_s), MAX_TTL_S))

    async def _hosts(self, resolver: Resolver) -> tuple[list[Found], float]:
        address = Address.parse(self._name)
        hosts, ttl_s = await _addresses(resolver, address.host)
        return [Found(f"{host}:{address.port}", str(Address(host, address.port))) for host in hosts], ttl_s

    async def _services(self, resolver: Resolver) -> tuple[list[Found], float]:
        """SRV (RFC 2782): those of the best priority; the weight is the replica's."""
        records = await _ask(resolver, self._name, "SRV")
        if records is None:
            return [], 0.0
        best = min(record.priority for record in records)
        found, ttl_s = [], float(records.ttl)
        for record in (r for r in records if r.priority == best):
            target = record.target.to_text(omit_final_dot=True)
            hosts, host_ttl_s = await _addresses(resolver, target)
            ttl_s = min(ttl_s, host_ttl_s)
            weight = min(max(record.weight, 1), 128)
            found += [Found(f"{target}:{record.port}", str(Address(h, record.port)), weight) for h in hosts[:1]]
        return found, ttl_s


async def _addresses(resolver: Resolver, name: str) -> tuple[list[str], float]:
    for kind in ("A", "AAAA"):
        records = await _ask(resolver, name, kind)
        if records is not None:
            return sorted(record.address for record in records), float(records.ttl)
    return [], 0.0


async def _ask(resolver: Resolver, name: str, kind: str) -> RRset | None:
    """None where there is no such record: that is an answer. Raises SourceError where there is none."""
    from dns.exception import DNSException
    from dns.resolver import NXDOMAIN, NoAnswer

    try:
        return (await resolver.resolve(name, kind, lifetime=TIMEOUT_S, search=True)).rrset
    except (NXDOMAIN, NoAnswer):
        return None
    except (DNSException, OSError) as error:
        raise SourceError(f"{kind} of {name}: {error}") from None
