"""Where responses are kept, and whose they are: in the table of homes, as sessions of their own.

A response is found by its tenant alone. Where there are tenants, it is noted once more without one: so an id that
another tenant has got hold of is told from one that nobody knows. An engine knows no tenants, and would answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homing.core import responses
from homing.core.fleet import Replica
from homing.core.placement.home import Placer
from homing.core.placement.pools import CompiledPool
from homing.core.session import SessionKey


class Kept:
    """`several`: whether there are tenants to be told apart, now."""

    __slots__ = ("_placer", "_several")

    def __init__(self, placer: Placer, several: Callable[[], bool]) -> None:
        self._placer = placer
        self._several = several

    def keys(self, tenant: bytes, response_id: bytes) -> tuple[SessionKey, ...]:
        """All under which a response may be known."""
        key = responses.key(tenant, response_id)
        return (key, responses.anyones(response_id)) if self._several() else (key,)

    def remember(self, pool_id: str, tenant: bytes, response_id: bytes, replica_id: str, now: float) -> None:
        for key in self.keys(tenant, response_id):
            self._placer.remember(pool_id, key, replica_id, now)

    def holder(self, pool: CompiledPool, tenant: bytes, response_id: bytes, now: float) -> Replica | None:
        """The replica that has it, if it serves and the response is this tenant's. Counts as use."""
        holder = self._placer.holder(pool, responses.key(tenant, response_id), now)
        if holder is not None and self._several():
            self._placer.remember(pool.pool.id, responses.anyones(response_id), holder.id, now)
        return holder

    def anothers(self, pools: Iterable[CompiledPool], tenant: bytes, response_id: bytes, now: float) -> bool:
        """Whether it is known, and not to this tenant."""
        if not self._several():
            return False
        key, anyones = self.keys(tenant, response_id)
        known = [pool for pool in pools if self._placer.unknown(pool, anyones, now) is None]
        return bool(known) and all(self._placer.unknown(pool, key, now) is not None for pool in known)
