"""Whether a replica that answers its probes can serve: asked when it joins, and again when its process is another one.

The answer survives a restart of this service for as long as the engine's process lives: a fleet under load is not asked
again only because the control plane came back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from homing.control.engine import Asked
from homing.control.membership import Membership
from homing.core.fleet import ProcessSeen
from homing.core.placement.load import Place

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""So often a replica that is well is asked when its process began. After a failed probe it is asked at once."""


class Engine(Protocol):
    async def epoch(self, asked: Asked) -> int: ...

    async def unfit(self, asked: Asked) -> str: ...


class Store(Protocol):
    """Raises OSError for what it cannot keep."""

    async def put_proved(self, place: Place, epoch: int) -> None: ...


@dataclass(slots=True)
class _Known:
    """Of one replica: the process that was proved, and when it was looked at last."""

    proved: bool = False
    epoch: int = 0
    looked_s: float = float("-inf")
    said: str = ""


class Proving:
    """The prober asks it about every replica whose probe succeeded. On the loop's thread only."""

    def __init__(
        self,
        membership: Membership,
        engine: Engine,
        store: Store,
        clock: Callable[[], float],
        look_s: float = LOOK_EVERY_S,
    ) -> None:
        self._membership = membership
        self._engine = engine
        self._store = store
        self._clock = clock
        self._look_s = look_s
        self._known: dict[Place, _Known] = {}

    def restore(self, proved: dict[Place, int]) -> None:
        """What an earlier process knew: the epoch that was proved, by replica."""
        self._known = {place: _Known(proved=True, epoch=epoch) for place, epoch in proved.items()}

    @property
    def proved(self) -> dict[Place, int]:
        return {place: known.epoch for place, known in self._known.items() if known.proved and known.epoch}

    def failed(self, place: Place) -> None:
        """Its probe failed: it may be another process when it is back."""
        if (known := self._known.get(place)) is not None:
            known.looked_s, known.said = float("-inf"), ""

    def why_unfit(self, place: Place) -> str:
        """Why it cannot serve, though it answers its probes; empty where it can, or does not answer them."""
        known = self._known.get(place)
        return "" if known is None else known.said

    def forget(self, place: Place) -> None:
        """It is not probed any more."""
        self._known.pop(place, None)

    async def fit(self, place: Place, address: str) -> bool:
        """Whether the replica can serve, as far as is known. May take as long as a request does."""
        asked = self._asked(place, address)
        if asked is None:
            return True
        known = self._known.setdefault(place, _Known())
        if self._clock() - known.looked_s >= self._look_s:
            await self._look(place, known, asked)
        if not known.proved:
            await self._prove(place, known, asked)
        return known.proved

    async def _look(self, place: Place, known: _Known, asked: Asked) -> None:
        epoch = await self._engine.epoch(asked)
        known.looked_s = self._clock()
        if not epoch:
            return
        if epoch != known.epoch:
            if known.epoch:
                log.info("replica %s of pool %s is another process than before: it is cold", place[1], place[0])
            known.proved, known.epoch = False, epoch
        self._membership.apply(ProcessSeen(*place, epoch))

    async def _prove(self, place: Place, known: _Known, asked: Asked) -> None:
        why = await self._engine.unfit(asked) if asked.kind != "off" else ""
        known.proved = not why
        if why and why != known.said:
            log.warning("replica %s of pool %s answers its probes, but cannot serve: %s", place[1], place[0], why)
        known.said = why
        if known.proved and known.epoch:
            try:
                await self._store.put_proved(place, known.epoch)
            except OSError as error:
                log.error("that %s/%s was proved will not survive a restart: %s", *place, error)

    def _asked(self, place: Place, address: str) -> Asked | None:
        view, (pool_id, replica_id) = self._membership.view, place
        pool, members = next((p for p in view.config.pools if p.id == pool_id), None), view.fleet.pool(pool_id)
        replica = members.replica(replica_id) if members is not None else None
        rank = replica.rank if replica is not None else None
        return Asked(pool_id, address, pool.served_name, pool.engine.proof, rank) if pool is not None else None
