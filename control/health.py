"""Active health: every replica is asked at its own pace, so that one that hangs delays nobody."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

import httpx

from homing.control.engine_transport import EngineTransport, EngineTrust, plain
from homing.control.leadership.standing import Role
from homing.control.membership import Membership, View
from homing.control.proving import Proving
from homing.control.thresholds import Verdict
from homing.core.config import Address, HealthCheck
from homing.core.fleet import HealthChanged
from homing.core.placement.load import Place

log = logging.getLogger(__name__)

Probe = Callable[[str, HealthCheck], Awaitable[str]]
"""One question to "ip:port": what is wrong with it, in words; empty where it is healthy. Never raises for what a
replica does or fails to do."""

JITTER = 0.2  # share of the interval, either way: probes of many replicas spread out
UNSETTLED_INTERVAL_S = 0.2  # until there is a first verdict, so that start-up does not wait for whole intervals
MAX_BODY_BYTES = 65_536


class HttpProbe:
    """GET of the health path; 200 is healthy. Keeps one connection per replica. An asynchronous context manager."""

    def __init__(self, trust: EngineTrust | None = None) -> None:
        """`trust`: None where all replicas speak plain HTTP."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._transport = EngineTransport(trust or plain(), limits)

    async def __aenter__(self) -> HttpProbe:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def __call__(self, address: str, check: HealthCheck) -> str:
        try:
            async with asyncio.timeout(check.timeout_s):
                status = await self._ask(f"http://{address}{check.path}")
        except TimeoutError:
            return f"{check.path} is not answered within {check.timeout_s:g} s"
        except httpx.ConnectError:
            return "it cannot be connected to"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return f"{check.path} is not answered ({type(error).__name__})"
        return "" if status == httpx.codes.OK else f"{check.path} is answered with {status}"

    async def _ask(self, url: str) -> int:
        """The status of its answer."""
        async with self._transport.get(url) as response:
            size = 0
            async for chunk in response.aiter_raw():  # read to its end, or the connection could not be used again
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    break
            return response.status_code


@dataclass(frozen=True, slots=True)
class Target:
    """What is probed. Another address or another check is another target, and begins without a verdict."""

    pool_id: str
    replica_id: str
    address: str
    check: HealthCheck

    @property
    def place(self) -> Place:
        return self.pool_id, self.replica_id


class Prober:
    """Probes the replicas of a membership and tells it what it finds."""

    def __init__(self, membership: Membership, probe: Probe, random: Random, proving: Proving | None = None) -> None:
        """`proving`: who is asked about replicas whose probes succeed."""
        self.settled = asyncio.Event()
        """Set once every replica of the beginning has a verdict."""
        self.probes: Counter[tuple[str, bool]] = Counter()
        """Probes since the start, by (pool, whether healthy)."""
        self._membership = membership
        self._probe = probe
        self._random = random
        self._proving = proving
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._unsettled: set[Target] = set()
        self._troubles: dict[Place, str] = {}

    def why_unhealthy(self, place: Place) -> str:
        """What its last probe had against it; empty for nothing."""
        return self._troubles.get(place, "")

    async def run(self) -> None:
        """Until cancelled."""
        views = self._membership.views
        async with asyncio.TaskGroup() as tasks:
            serial, view = views.serial, views.value
            while True:
                decides = self._membership.role() is not Role.FOLLOWING
                self._aim(_targets(view) if decides else {}, tasks)
                serial, view = await views.after(serial)

    def _aim(self, targets: Mapping[Target, bool], tasks: asyncio.TaskGroup) -> None:
        for target in self._tasks.keys() - targets.keys():
            self._tasks.pop(target).cancel()
            self._troubles.pop(target.place, None)
            if self._proving is not None:
                self._proving.forget(target.place)
            self._unsettled.discard(target)
        for target, healthy in targets.items():
            if target not in self._tasks:
                self._unsettled.add(target)
                self._tasks[target] = tasks.create_task(self._probe_for_ever(target, Verdict(healthy)))
        self._note_settled()

    async def _probe_for_ever(self, target: Target, verdict: Verdict) -> None:
        # A name that did not resolve fails without being asked.
        resolved = Address.parse(target.address).ip is not None
        while True:
            trouble = await self._probe(target.address, target.check) if resolved else "its name does not resolve"
            self._note(target.place, trouble)
            ok = not trouble
            if self._proving is not None:
                ok = await self._proved(self._proving, target, ok)
            self.probes[target.pool_id, ok] += 1
            before, verdict = verdict, verdict.after(ok, target.check)
            if verdict.tells_more_than(before) and not self._tell(target, before, verdict):
                verdict = replace(verdict, healthy=before.healthy, settled=before.settled)  # said again next time
            await asyncio.sleep(self._pause_s(target.check.interval_s, verdict))

    async def _proved(self, proving: Proving, target: Target, ok: bool) -> bool:
        if ok:
            return await proving.fit(target.place, target.address)
        proving.failed(target.place)
        return False

    def _note(self, place: Place, trouble: str) -> None:
        if trouble:
            self._troubles[place] = trouble
        else:
            self._troubles.pop(place, None)

    def _tell(self, target: Target, before: Verdict, verdict: Verdict) -> bool:
        """Whether it was for this process to say."""
        self._unsettled.discard(target)
        self._note_settled()
        if not self._membership.apply(HealthChanged(target.pool_id, target.replica_id, verdict.healthy)):
            return False
        if verdict.healthy != before.healthy or not verdict.healthy:
            trouble = self.why_unhealthy(target.place)
            failing = f"fails its probes: {trouble}" if trouble else "is not fit to serve"
            words = "answers its probes" if verdict.healthy else failing
            log.info("replica %s of pool %s (%s) %s", target.replica_id, target.pool_id, target.address, words)
        return True

    def _note_settled(self) -> None:
        if not self._unsettled:
            self.settled.set()

    def _pause_s(self, interval_s: float, verdict: Verdict) -> float:
        if not verdict.settled:
            return min(interval_s, UNSETTLED_INTERVAL_S)
        return interval_s * self._random.uniform(1 - JITTER, 1 + JITTER)


def _targets(view: View) -> dict[Target, bool]:
    """What is to be probed, and whether it is thought healthy."""
    return {
        Target(pool.id, r.id, r.address, view.config.health): r.healthy
        for pool in view.fleet.pools
        for r in pool.replicas
    }
