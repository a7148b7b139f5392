"""Carries a rollout out: publishes, waits, writes the last-good files. What to tell is planned in `rollout`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from homing.control.ads import Answer
from homing.control.latest import Latest
from homing.control.membership import View
from homing.control.rollout import TellEnvoys, TellPickers, plan, reachable
from homing.control.snapshot import Snapshot
from homing.core.config import Config
from homing.core.fleet import Fleet

log = logging.getLogger(__name__)

PICKERS_WAIT_S = 0.5
ENVOYS_WAIT_S = 2.0


Parts = Callable[[frozenset[str]], Awaitable[Snapshot | None]]


class Envoys(Protocol):
    def publish(self, snapshot: Snapshot, parts: Parts) -> None: ...

    async def wait_acked(self, version: str, timeout_s: float) -> Answer: ...


class Pickers(Protocol):
    def publish(self, fleet: Fleet) -> None: ...

    async def wait_applied(self, version: str, timeout_s: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class LastGoodFiles:
    """What to write once the Envoys have a fleet: `make` the contents by name, `write` them (OSError)."""

    make: Callable[[Config, Fleet], Mapping[str, bytes]]
    write: Callable[[Mapping[str, bytes]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Told:
    """What the Envoys were told last, and the version of the snapshot that said it."""

    config: Config
    fleet: Fleet
    version: str


class Telling:
    """Brings pickers and Envoys from what they were told to what is so, one change after the other."""

    def __init__(
        self,
        envoys: Envoys,
        pickers: Pickers,
        snapshot: Callable[[Config, Fleet], Snapshot],
        files: LastGoodFiles | None = None,
    ) -> None:
        self.done = asyncio.Event()
        """Set once a first fleet was told to all."""
        self.failures: Counter[str] = Counter()
        """Since the start: `snapshot` (could not be made, or was inconsistent) and `files` (could not be written)."""
        self.writes = 0
        """Files written since the start."""
        self._envoys = envoys
        self._pickers = pickers
        self._snapshot = snapshot
        self._files = files
        self._target: Latest[View | None] = Latest(None)
        self._told: Latest[Told | None] = Latest(None)
        self._config: Config | None = None
        self._pickers_know = Fleet()
        self._envoys_know = Fleet()

    def aim(self, config: Config, fleet: Fleet) -> None:
        """What is so. Only the newest matters."""
        self._target.set(View(config, fleet))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_for_ever())
            if self._files is not None:
                tasks.create_task(self._write_for_ever(self._files))

    async def _tell_for_ever(self) -> None:
        serial = 0
        while True:
            serial, target = await self._target.after(serial)
            if target is not None and await self._tell(target.config, reachable(target.fleet)):
                self.done.set()

    async def _tell(self, config: Config, fleet: Fleet) -> bool:
        """Whether all of it was told. What was not is part of the next plan."""
        for step in plan(self._pickers_know, self._envoys_know, fleet, reconfigured=config != self._config):
            match step:
                case TellPickers():
                    self._pickers.publish(step.fleet)
                    self._pickers_know = step.fleet
                    if step.awaited:
                        await self._pickers.wait_applied(step.fleet.version, PICKERS_WAIT_S)
                case TellEnvoys():
                    snapshot = await self._made(config, step.fleet)
                    if snapshot is None:
                        return False
                    self._envoys.publish(snapshot, partial(self._part, config, step.fleet))
                    self._envoys_know, self._config = step.fleet, config
                    if step.awaited:
                        await self._envoys.wait_acked(snapshot.version, ENVOYS_WAIT_S)
                    if step.fleet == fleet:
                        self._told.set(Told(config, fleet, snapshot.version))
        log.info("told: fleet %s", fleet.version)
        return True

    async def _part(self, config: Config, fleet: Fleet, pools: frozenset[str]) -> Snapshot | None:
        """For an Envoy that wants to know of `pools` only."""
        chosen = Fleet(tuple(pool for pool in fleet.pools if pool.id in pools))
        if not chosen.pools:
            log.warning("an Envoy asks for pools %s, and there is none of them: it is told nothing", sorted(pools))
            return None
        return await self._made(config, chosen)

    async def _made(self, config: Config, fleet: Fleet) -> Snapshot | None:
        """None for one that must not be sent; the last one stays in force."""
        try:
            snapshot = await asyncio.to_thread(self._snapshot, config, fleet)
        except Exception:  # a bug there must not end the service that keeps the fleet alive
            log.exception("fleet %s: no configuration for Envoy could be made; the last one stays", fleet.version)
            self.failures["snapshot"] += 1
            return None
        if dangling := snapshot.dangling():
            log.error("fleet %s: the configuration for Envoy lacks %s; the last one stays", fleet.version, dangling)
            self.failures["snapshot"] += 1
            return None
        return snapshot

    async def _write_for_ever(self, files: LastGoodFiles) -> None:
        serial = 0
        while True:
            serial, told = await self._told.after(serial)
            if told is None:
                continue
            if await self._envoys.wait_acked(told.version, ENVOYS_WAIT_S) is Answer.NACKED:
                log.warning("an Envoy refused snapshot %s: the last-good files stay as they are", told.version)
            else:
                await self._write(files, told)

    async def _write(self, files: LastGoodFiles, told: Told) -> None:
        try:
            written = await asyncio.to_thread(lambda: files.write(files.make(told.config, told.fleet)))
        except Exception:  # a full disk, or a bug in the making: neither must end the service
            log.exception("the last-good files could not be written")
            self.failures["files"] += 1
        else:
            self.writes += len(written)
