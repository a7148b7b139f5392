"""Each pool's chat template, had from where the file says, probed, and told to the fleet. In the background: a
template that cannot be had delays nobody, it is tried again, and until then nothing is repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from homing.control.membership import Membership, View
from homing.control.templates.files import Signature, signature
from homing.control.templates.finding import TROUBLES, Finder, Found, where
from homing.core.config import PoolConfig, TemplateConfig
from homing.core.config.secret import SecretRef
from homing.core.fleet import Replica, TemplateProbed
from homing.core.template.advice import warnings

log = logging.getLogger(__name__)

POLL_S = 2.0
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """What is probed. Another one begins anew."""

    pool_id: str
    source: TemplateConfig
    model: str
    key: SecretRef | None = None

    @classmethod
    def of(cls, pool: PoolConfig) -> Target:
        return cls(pool.id, pool.template, pool.served_name, pool.engine.api_key)


@dataclass(slots=True)
class Progress:
    """Of one target. `replaces`: another source before it, whose record is not its own. `trouble`: why the last try
    found nothing; empty when it did."""

    target: Target
    found: Found | None = None
    trouble: str = ""
    tries: int = 0
    replaces: bool = False


class TemplateProber:
    """Probes the templates of a membership's pools and tells it the records."""

    def __init__(self, membership: Membership, finder: Finder, random: Random) -> None:
        self.progress: dict[str, Progress] = {}
        """By pool."""
        self._membership = membership
        self._finder = finder
        self._random = random
        self._tasks: dict[Target, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        views = self._membership.views
        async with asyncio.TaskGroup() as tasks:
            serial, view = views.serial, views.value
            while True:
                self._aim(view, tasks)
                serial, view = await views.after(serial)

    def _aim(self, view: View, tasks: asyncio.TaskGroup) -> None:
        targets = {pool.id: Target.of(pool) for pool in view.config.pools}
        for target in self._tasks.keys() - set(targets.values()):
            self._tasks.pop(target).cancel()
        for pool_id in self.progress.keys() - targets.keys():
            del self.progress[pool_id]
        for target in targets.values():
            if target not in self._tasks:
                self.progress[target.pool_id] = Progress(target, replaces=target.pool_id in self.progress)
                self._tasks[target] = tasks.create_task(self._follow(target))

    async def _follow(self, target: Target) -> None:
        if path := self._finder.path_of(target.source):
            await self._follow_files(target, path)
        elif target.source.source == "engine":
            await self._follow_engine(target)
        else:
            self._membership.apply(TemplateProbed(target.pool_id, None))

    async def _follow_files(self, target: Target, path: Path) -> None:
        pauses = Backoff(self._random)
        while True:
            seen = signature(path)
            if await self._tried(target, self._finder.in_files(target.source)):
                pauses = Backoff(self._random)
                await _changed(path, seen)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(next(pauses)):
                        await _changed(path, seen)

    async def _follow_engine(self, target: Target) -> None:
        """Asks a replica that came, or came back: it may have another template than the last."""
        known: frozenset[str] = frozenset()
        pauses = Backoff(self._random)
        while True:
            fit, replica = await self._newcomer(target.pool_id, known)
            if await self._tried(target, self._finder.of_engine(replica.address, target.model, target.key)):
                known, pauses = fit, Backoff(self._random)
            else:
                await asyncio.sleep(next(pauses))

    async def _newcomer(self, pool_id: str, known: frozenset[str]) -> tuple[frozenset[str], Replica]:
        """As soon as a replica serves that was not known to: all that serve, and one of the new."""
        views = self._membership.views
        serial, view = views.serial, views.value
        while True:
            pool = view.fleet.pool(pool_id)
            serving = {r.id: r for r in pool.replicas if r.in_hash} if pool else {}
            known &= serving.keys()
            if new := sorted(serving.keys() - known):
                return frozenset(serving), serving[self._random.choice(new)]
            serial, view = await views.after(serial)

    async def _tried(self, target: Target, finding: Awaitable[Found]) -> bool:
        progress = self.progress[target.pool_id]
        progress.tries += 1
        try:
            found = await finding
        except TROUBLES as error:
            self._failed(progress, str(error))
            return False
        except Exception as error:  # a bug in the probing must not end the service that keeps the fleet alive
            log.exception("pool %s: its chat template could not be probed", target.pool_id)
            self._failed(progress, type(error).__name__)
            return False
        if found != progress.found:
            said = len(warnings(found.record))
            log.info("pool %s: chat template probed (%s), %d warnings", target.pool_id, where(target.source), said)
        progress.found, progress.trouble = found, ""
        digest = found.text.digest if found.text else ""
        self._membership.apply(TemplateProbed(target.pool_id, found.record, digest))
        return True

    def _failed(self, progress: Progress, trouble: str) -> None:
        """What was known before stays, also what control told before it went away: most failures are an engine that is
        restarting."""
        if trouble != progress.trouble:
            words = "the last one stays" if progress.found else "nothing is repaired"
            pool_id, source = progress.target.pool_id, where(progress.target.source)
            log.warning("pool %s: no chat template from %s (%s): %s", pool_id, source, trouble, words)
        progress.trouble = trouble
        if progress.found is None and progress.replaces:
            self._membership.apply(TemplateProbed(progress.target.pool_id, None))


class Backoff:
    """Pauses that double, up to a limit; jittered, so that pools and pickers do not ask in step."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next_s = FIRST_RETRY_S

    def __iter__(self) -> Backoff:
        return self

    def __next__(self) -> float:
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, LAST_RETRY_S)
        return pause_s * self._random.uniform(0.8, 1.2)


async def _changed(path: Path, seen: Signature) -> None:
    """Returns when the files are others than those `seen`."""
    while signature(path) == seen:  # noqa: ASYNC110 (there is nothing to wait for)
        await asyncio.sleep(POLL_S)
