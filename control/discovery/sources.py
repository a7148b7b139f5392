"""All sources of all pools, followed at once: what they say goes to the membership, and what they fail at is shown.

A source that fails keeps the last good set, also over a restart of this service. One that suddenly finds nobody is not
believed before it has found nobody for `empty_grace_s`: an empty answer is more often a mistake than a fact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from homing.control.discovery.dns import DnsSource
from homing.control.discovery.docker import DockerSource
from homing.control.discovery.file import FileSource
from homing.control.discovery.kubernetes import KubernetesSource
from homing.control.discovery.source import Found, Source, SourceError, by_rank
from homing.control.membership import Membership
from homing.core.config import Config, Discovery
from homing.core.fleet import Replica, State

log = logging.getLogger(__name__)

KINDS = ("file", "dns", "docker", "kubernetes")
RETRY_S = 1.0
MAX_RETRY_S = 30.0
FIRST_ANSWERS_S = 5.0
"""So long the start waits for sources that have not answered, and never did before."""

MAX_REPLICAS = 1000  # of one source in one pool

Key = tuple[str, str]
"""(pool id, kind of source)"""

Make = Callable[[str, Discovery], Source]


class Store(Protocol):
    """Where the last good sets survive a restart. Raises OSError."""

    async def put_found(self, key: Key, found: tuple[Found, ...]) -> None: ...


@dataclass(frozen=True, slots=True)
class Health:
    """How a source does. `error` is empty while it answers; `doubted`: it finds nobody, and is not believed yet."""

    found: int = 0
    answered: bool = False
    error: str = ""
    doubted: bool = False


class _Doubt:
    """Of one source that finds nobody."""

    def __init__(self) -> None:
        self._waiting: asyncio.Task[None] | None = None

    def begin(self, wait: Callable[[Key, float], Coroutine[None, None, None]], key: Key, grace_s: float) -> None:
        """Once: that it says so again and again, as DNS does, makes it neither more nor less believable."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(wait(key, grace_s))

    def end(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class Sources:
    """Owns what is discovered. On the loop's thread only."""

    def __init__(self, membership: Membership, make: Make, store: Store, random: Random) -> None:
        self.health: dict[Key, Health] = {}
        """Of every source that the file names now."""
        self.failures = 0
        """Since the start."""
        self._membership = membership
        self._make = make
        self._store = store
        self._random = random
        self._good: dict[Key, tuple[Found, ...]] = {}
        self._tasks: dict[Key, tuple[Discovery, asyncio.Task[None]]] = {}
        self._answered = asyncio.Event()

    def restore(self, good: Mapping[Key, tuple[Found, ...]]) -> None:
        """What an earlier process found: it stands until the sources say something else."""
        self._good = dict(good)
        for key in wanted(self._membership.view.config):
            if key in self._good:
                self._report(key, self._good[key])

    @property
    def good(self) -> Mapping[Key, tuple[Found, ...]]:
        """The last good set of each."""
        return self._good

    def restore_failing(self, good: Mapping[Key, tuple[Found, ...]]) -> None:
        """What another process found, of the sources that do not answer here."""
        for key in wanted(self._membership.view.config).keys() & good.keys():
            health = self.health.get(key, Health())
            if (health.error or not health.answered) and self._good.get(key) != good[key]:
                self._good[key] = good[key]
                self._report(key, good[key])

    async def first_answers(self) -> None:
        """Returns when every source has answered, now or to an earlier process, or has had its time."""
        try:
            async with asyncio.timeout(FIRST_ANSWERS_S):
                while self._silent():
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            log.warning("no answer yet from %s", ", ".join(f"{kind} of pool {pool}" for pool, kind in self._silent()))

    async def run(self) -> None:
        """Until cancelled. Sources come and go with the file."""
        views = self._membership.views
        async with asyncio.TaskGroup() as tasks:
            while True:
                serial = views.serial
                self._aim(wanted(self._membership.view.config), tasks)
                await views.after(serial)

    def _silent(self) -> list[Key]:
        return [k for k in wanted(self._membership.view.config) if k not in self._good]

    def _aim(self, keys: Mapping[Key, Discovery], tasks: asyncio.TaskGroup) -> None:
        for key, (settings, task) in list(self._tasks.items()):
            if keys.get(key) != settings:
                task.cancel()
                del self._tasks[key]
            if key not in keys:
                self.health.pop(key, None)
                self._good.pop(key, None)
                self._report(key, ())
        for key, settings in keys.items():
            if key not in self._tasks:
                self.health.setdefault(key, Health(len(self._good.get(key, ()))))
                self._tasks[key] = (settings, tasks.create_task(self._follow(key, settings)))

    async def _follow(self, key: Key, settings: Discovery) -> None:
        retry_s = RETRY_S
        doubt = _Doubt()
        try:
            while True:
                try:
                    async for addresses in self._make(key[1], settings).follow():
                        found = addresses if key[1] == "file" else by_rank(addresses, settings.dp_size)
                        retry_s = RETRY_S
                        if found or not self._good.get(key):
                            doubt.end()
                            await self._believe(key, found)
                        else:
                            doubt.begin(self._doubt, key, settings.empty_grace_s)
                except SourceError as error:
                    doubt.end()
                    self._note_failure(key, str(error))
                await asyncio.sleep(retry_s * self._random.uniform(0.8, 1.2))
                retry_s = min(2 * retry_s, MAX_RETRY_S)
        finally:
            doubt.end()

    async def _doubt(self, key: Key, grace_s: float) -> None:
        """An empty answer counts once nothing else was heard for so long."""
        kept = len(self._good[key])
        log.warning("%s finds nobody in pool %s; its %d replicas stay for %g s more", key[1], key[0], kept, grace_s)
        self.health[key] = Health(kept, answered=True, doubted=True)
        await asyncio.sleep(grace_s)
        await self._believe(key, ())

    async def _believe(self, key: Key, found: tuple[Found, ...]) -> None:
        if len(found) > MAX_REPLICAS:
            self._note_failure(key, f"more than {MAX_REPLICAS} replicas")
            return
        before = self.health.get(key, Health())
        if before.error:
            log.info("%s of pool %s answers again", key[1], key[0])
        self.health[key] = Health(len(found), answered=True)
        if self._good.get(key) != found:
            log.info("%s of pool %s finds %d replicas", key[1], key[0], len(found))
            self._good[key] = found
            try:
                await self._store.put_found(key, found)
            except OSError as error:
                log.error("what was found will not survive a restart: %s", error)
            self._report(key, found)
        self._answered.set()

    def _note_failure(self, key: Key, error: str) -> None:
        self.failures += 1
        before = self.health.get(key, Health())
        if before.error != error:
            log.warning("%s of pool %s fails, its last %d replicas stay: %s", key[1], key[0], before.found, error)
        self.health[key] = Health(before.found, before.answered, error)

    def _report(self, key: Key, found: tuple[Found, ...]) -> None:
        replicas = tuple(
            Replica(f.id, f.address, f.weight, State.JOINING, healthy=False, rank=f.rank, tls=f.tls) for f in found
        )
        self._membership.report(key[1], key[0], replicas)


def wanted(config: Config) -> dict[Key, Discovery]:
    """The sources that the file names."""
    return {
        (pool.id, kind): pool.discovery
        for pool in config.pools
        if pool.discovery is not None
        for kind in KINDS
        if getattr(pool.discovery, kind) is not None
    }


def made_beside(file: Path) -> Make:
    """Makes sources; paths are relative to the directory of `file`."""

    def make(kind: str, settings: Discovery) -> Source:
        if kind == "file" and settings.file is not None:
            return FileSource(file.parent / settings.file)
        if kind == "dns" and settings.dns is not None:
            return DnsSource(settings.dns)
        if kind == "docker" and settings.docker is not None:
            return DockerSource(settings.docker)
        assert settings.kubernetes is not None
        account = settings.kubernetes.kubeconfig
        beside = {"kubeconfig": str(file.parent / account)} if account else {}
        return KubernetesSource(settings.kubernetes.model_copy(update=beside))

    return make
