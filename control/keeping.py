"""What is kept by one control service for the next, or for the others: given and taken over as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from homing.control.audit import Audit
from homing.control.discovery.sources import Sources
from homing.control.drains import Drains
from homing.control.policies import Policies
from homing.control.proving import Proving
from homing.control.registrations import Registrations
from homing.control.state import LastFound, Proved, Saved

CATCH_UP_S = 1.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """The parts of a control service whose knowledge survives it. `decides`: whether this one decides now."""

    drains: Drains
    registrations: Registrations
    sources: Sources
    proving: Proving
    audit: Audit
    policies: Policies
    decides: Callable[[], bool]

    def restore(self, saved: Saved) -> None:
        """What an earlier process knew. Before anything runs."""
        self.sources.restore({last.key: last.found for last in saved.found})
        self._take_over(saved, new=True)

    def take_over(self, saved: Saved) -> None:
        """What another process knows, or this one when it wrote it."""
        self.sources.restore_failing({last.key: last.found for last in saved.found})
        self._take_over(saved, new=not self.decides())

    def _take_over(self, saved: Saved, *, new: bool) -> None:
        self.registrations.restore(saved.registrations)
        if new:  # who decides knows better than what it wrote itself
            self.proving.restore({proved.place: proved.epoch for proved in saved.proved})
        self.audit.restore(saved.audit)
        self.policies.restore(saved.policies)
        self.drains.restore(saved.drains)

    async def run(self) -> None:
        """Until cancelled. What had to be done though it could not be kept is kept once it can be."""
        while True:
            await asyncio.sleep(CATCH_UP_S)
            with contextlib.suppress(OSError):  # said where it was tried first
                await self.audit.catch_up()
                await self.policies.catch_up()

    def known(self) -> Saved:
        return Saved(
            self.drains.all,
            self.registrations.all,
            tuple(LastFound(key, found) for key, found in self.sources.good.items()),
            tuple(Proved(place, epoch) for place, epoch in self.proving.proved.items()),
            self.audit.all,
            self.policies.all,
        )
