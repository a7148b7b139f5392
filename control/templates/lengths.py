"""How long a conversation the engines of a pool take, where the file leaves it to them (`context.max_tokens: auto`):
each that serves is asked, and the smallest answer counts, since a request may come to any of them.

In the background, like the templates: an engine that does not say is asked again, and holds up nobody.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from random import Random

from homing.control.membership import Membership, View
from homing.control.templates.finding import TROUBLES, Finder
from homing.control.templates.prober import Backoff
from homing.core.config.secret import SecretRef
from homing.core.fleet import LengthTold

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """Who is asked. Another process at the same address is another one."""

    pool_id: str
    address: str
    model: str
    key: SecretRef | None
    epoch: int


class Lengths:
    """Asks the engines of a membership's pools and tells it the answers."""

    def __init__(self, membership: Membership, finder: Finder, random: Random) -> None:
        self._membership = membership
        self._finder = finder
        self._random = random
        self._tasks: dict[Engine, asyncio.Task[None]] = {}
        self._said: dict[Engine, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        views = self._membership.views
        async with asyncio.TaskGroup() as tasks:
            serial, view = views.serial, views.value
            while True:
                self._aim(view, tasks)
                serial, view = await views.after(serial)

    def _aim(self, view: View, tasks: asyncio.TaskGroup) -> None:
        engines = set(_serving(view))
        for gone in self._tasks.keys() - engines:
            self._tasks.pop(gone).cancel()
            self._said.pop(gone, None)
            self._tell(gone.pool_id)
        for engine in engines - self._tasks.keys():
            self._tasks[engine] = tasks.create_task(self._ask(engine))

    async def _ask(self, engine: Engine) -> None:
        said = ""
        for pause_s in Backoff(self._random):
            try:
                self._said[engine] = await self._finder.length_of_engine(engine.address, engine.model, engine.key)
                self._tell(engine.pool_id)
                return
            except TROUBLES as error:
                if str(error) != said:
                    log.warning("pool %s: %s does not say how many tokens it takes (%s)",
                                engine.pool_id, engine.address, error)  # fmt: skip
                said = str(error)
            await asyncio.sleep(pause_s)

    def _tell(self, pool_id: str) -> None:
        """What was known stays while nobody serves: most that went away come back as they were."""
        lengths = [length for engine, length in self._said.items() if engine.pool_id == pool_id and length]
        if lengths:
            self._membership.apply(LengthTold(pool_id, min(lengths)))


def _serving(view: View) -> list[Engine]:
    pools = {pool.id: pool for pool in view.config.pools if pool.context.max_tokens == "auto"}
    return [
        Engine(pool.id, replica.address, pools[pool.id].served_name, pools[pool.id].engine.api_key, replica.epoch)
        for pool in view.fleet.pools
        if pool.id in pools
        for replica in pool.replicas
        if replica.in_hash
    ]
