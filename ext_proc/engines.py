"""Asks each replica's engine for its counters, about once a second: the slow truth beside what a picker estimates.

Never on the way of a request. A replica that hangs or has no such metrics is asked less and less often, and delays
nobody: each address has a task of its own, and only so many ask at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import httpx

from homing.control.engine_transport import EngineTransport, EngineTrust, plain
from homing.core.fleet import Replica
from homing.core.placement.counters import Counters, read
from homing.core.placement.load import Place
from homing.core.placement.pools import CompiledFleet

INTERVAL_S = 1.0
JITTER = 0.2
LONGEST_INTERVAL_S = 30.0
"""For those that do not answer."""

AT_ONCE = 32

TIMEOUT_S = 1.0
MAX_BODY_BYTES = 4 << 20

Ask = Callable[[str], Awaitable[bytes]]
"""The text of /metrics at "ip:port". Raises OSError, also when it takes too long."""


class HttpAsk:
    """Keeps one connection for each engine. An asynchronous context manager."""

    def __init__(self, trust: EngineTrust | None = None) -> None:
        """`trust`: None where all engines speak plain HTTP."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._transport = EngineTransport(trust or plain(), limits)

    async def __aenter__(self) -> HttpAsk:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def __call__(self, address: str) -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT_S), self._transport.get(f"http://{address}/metrics") as answer:
                text = bytearray()
                async for chunk in answer.aiter_bytes():
                    text += chunk
                    if len(text) > MAX_BODY_BYTES:
                        break
                return bytes(text) if answer.status_code == httpx.codes.OK else b""
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise OSError(str(error)) from error


class Engines:
    """`told` gets each answer: the place, the counters, and those of before."""

    def __init__(
        self,
        ask: Ask,
        fleet: Callable[[], CompiledFleet],
        told: Callable[[Place, Counters, Counters | None], None],
        random: Random,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._ask = ask
        self._fleet = fleet
        self._told = told
        self._random = random
        self._interval_s = interval_s
        self._free = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last: dict[Place, Counters] = {}
        self._behind: Mapping[str, Mapping[Place, Replica]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        known: CompiledFleet | None = None
        async with asyncio.TaskGroup() as tasks:
            while True:
                if (fleet := self._fleet()) is not known:
                    known = fleet
                    self._aim(fleet, tasks)
                await asyncio.sleep(self._interval_s)

    def _aim(self, fleet: CompiledFleet, tasks: asyncio.TaskGroup) -> None:
        self._behind = _addresses(fleet)
        for address in self._tasks.keys() - self._behind.keys():
            self._tasks.pop(address).cancel()
        for address in self._behind.keys() - self._tasks.keys():
            self._tasks[address] = tasks.create_task(self._ask_for_ever(address))
        places = fleet.places()
        self._last = {place: counters for place, counters in self._last.items() if place in places}

    async def _ask_for_ever(self, address: str) -> None:
        pause_s = self._interval_s * self._random.random()  # not all in one moment
        while True:
            await asyncio.sleep(pause_s * self._random.uniform(1 - JITTER, 1 + JITTER))
            if await self._ask_once(address):
                pause_s = self._interval_s
            else:
                pause_s = min(max(pause_s, self._interval_s) * 2, LONGEST_INTERVAL_S)

    async def _ask_once(self, address: str) -> bool:
        async with self._free:
            try:
                text = await self._ask(address)
            except OSError:
                return False
        heard = False
        for place, replica in self._behind.get(address, {}).items():
            counters = read(text, replica.rank)
            if counters is not None:
                heard = True
                self._told(place, counters, self._last.get(place))
                self._last[place] = counters
        return heard


def _addresses(fleet: CompiledFleet) -> Mapping[str, Mapping[Place, Replica]]:
    """Who is to be asked, and who is behind each address."""
    behind: dict[str, dict[Place, Replica]] = {}
    for pool_id, compiled in fleet.by_id.items():
        for replica in compiled.members:
            behind.setdefault(replica.address, {})[pool_id, replica.id] = replica
    return behind
