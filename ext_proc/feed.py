"""Where a picker hears of the fleet: from the control service by a long poll that also acknowledges, or from the file.

Never on the hot path. A picker with a control service looks after itself while that is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import msgspec

from homing.control.trust import PLAIN, Trust
from homing.core.fleet import Fleet, decode

WAIT_S = 15.0  # control answers a poll after so long at the latest
WAIT_OF_SEVERAL_S = 3.0  # one that is frozen, not dead, is to be left for another soon
LATE_S = 3.0
RETRY_S = 0.5
AWAY_S = 3.0
"""Without control for longer than this, a picker probes the replicas itself."""

log = logging.getLogger(__name__)


class Feed:
    """`GET /api/feed?picker=NAME&have=VERSION` again and again. `adopt` gets each new fleet. `control`: a URL, or
    several with commas between: the next is asked when one does not answer."""

    def __init__(self, control: str, name: str, adopt: Callable[[Fleet], None], trust: Trust = PLAIN) -> None:
        self._urls = tuple(url.rstrip("/") + "/api/feed" for url in control.split(","))
        self._wait_s = WAIT_S if len(self._urls) == 1 else WAIT_OF_SEVERAL_S
        self._trust = trust
        self._name = name
        self._adopt = adopt
        self._have = ""
        self._changed = asyncio.Event()
        self.connected = False
        self.last = Fleet()
        """What control said last."""

    async def run(self) -> None:
        """Until cancelled."""
        async with httpx.AsyncClient(
            timeout=httpx.Timeout(self._wait_s + LATE_S, connect=2.0),
            trust_env=False,
            verify=self._trust.verify,
            auth=self._trust.auth,
        ) as client:
            while True:
                try:
                    await self._poll(client)
                    self._note(connected=True)
                except (httpx.HTTPError, msgspec.DecodeError) as error:
                    if await self._next_answers(client):
                        continue
                    self._note(connected=False, why=_why(error))
                    await asyncio.sleep(RETRY_S)

    async def _next_answers(self, client: httpx.AsyncClient) -> bool:
        """Whether another control service answers; from then on it is the one that is asked."""
        for _ in range(len(self._urls) - 1):
            self._urls = (*self._urls[1:], self._urls[0])
            with contextlib.suppress(httpx.HTTPError, msgspec.DecodeError):
                await self._poll(client, wait_s=0)
                log.info("control is at %s now", self._urls[0])
                self._note(connected=True)
                return True
        return False

    async def _poll(self, client: httpx.AsyncClient, wait_s: float | None = None) -> None:
        wait = self._wait_s if wait_s is None else wait_s
        response = await client.get(self._urls[0], params={"picker": self._name, "have": self._have, "wait_s": wait})
        response.raise_for_status()
        if response.status_code == 200:
            fleet = decode(response.content)
            self.last = fleet
            self._adopt(fleet)
            # what it calls it: a later release may say more of a fleet than this one reads
            self._have = response.headers.get("etag", "").strip('"') or fleet.version

    async def away(self) -> None:
        """Returns when control has been away for AWAY_S."""
        while self.connected or await self._connected_within(AWAY_S):
            await self._next_change()

    async def back(self) -> None:
        """Returns when control is there."""
        while not self.connected:
            await self._next_change()

    def forget(self) -> None:
        """What control told last is not what the picker has any more: it is to tell it again."""
        self._have = ""

    async def _connected_within(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.back()
        except TimeoutError:
            return False
        return True

    async def _next_change(self) -> None:
        await self._changed.wait()

    def _note(self, *, connected: bool, why: str = "") -> None:
        if connected == self.connected:
            return
        log.info("control is there" if connected else f"control is away ({why}): the last fleet stays")
        self.connected = connected
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _why(error: Exception) -> str:
    """Without a word of the answer."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answers {error.response.status_code}"
    return f"{type(error).__name__}: {error}" if isinstance(error, httpx.ConnectError) else type(error).__name__


async def follow(feed: Feed, watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """The feed while control is there; `watch()`, own probes of the last fleet, while it is away. For ever."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(feed.run())
        while True:
            await feed.away()
            log.info("control stays away: probing the replicas that it told last")
            watching = tasks.create_task(watch())
            feed.forget()
            await feed.back()
            watching.cancel()
