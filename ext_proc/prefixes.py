"""Keeps the index of prefixes fed: which engines to listen to, and what to learn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from homing.control.engine_transport import EngineTrust
from homing.core.config import Config
from homing.core.fleet import Fleet
from homing.core.prefix.index import Index
from homing.ext_proc.kept import kept
from homing.ext_proc.kv_source import KvCounts, Source
from homing.ext_proc.tokenizing import Learner

if TYPE_CHECKING:
    from homing.core.config.models import EngineConfig

log = logging.getLogger(__name__)


class Prefixes:
    """The index and what feeds it. Only pools whose file says `engine.kv_events` are listened to."""

    def __init__(self, index: Index, trust: EngineTrust | None = None) -> None:
        """`trust`: None where all engines speak plain HTTP."""
        self.index = index
        self.learner = Learner(index, trust=trust)
        self.kv_counts = KvCounts()
        self.sources: frozenset[Source] = frozenset()
        self._engines: Mapping[str, EngineConfig] = {}
        self._fleet = Fleet()
        self._changed = asyncio.Event()

    def configure(self, config: Config) -> None:
        self._engines = {pool.id: pool.engine for pool in config.pools if pool.engine.kv_events}
        self._derive()

    def adopt(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.index.keep([pool.id for pool in fleet.pools])
        self._derive()

    async def run(self) -> None:
        """Until cancelled. Without pools that tell their events nothing is imported, and nobody asked."""
        while not self.sources:
            self._changed.clear()
            await self._changed.wait()
        try:
            from homing.ext_proc.kv_events import listen
        except ImportError:
            log.error("no KV events: pyzmq is not installed (pip install 'homing[kv]'); placing by what was sent")
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kept(self.learner.run, "learning prompts"))
            tasks.create_task(kept(lambda: listen(self.changes(), self.index, self.kv_counts), "hearing KV events"))

    async def changes(self) -> AsyncIterator[frozenset[Source]]:
        """The sources, now and after each change."""
        while True:
            self._changed.clear()
            yield self.sources
            await self._changed.wait()

    def _derive(self) -> None:
        sources = frozenset(
            Source.of(pool.id, replica, engine)
            for pool in self._fleet.pools
            if (engine := self._engines.get(pool.id)) is not None
            for replica in pool.replicas
        )
        if sources != self.sources:
            self.sources = sources
            self._changed.set()
