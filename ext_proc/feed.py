"""Where a picker hears of the fleet when there is a control service: a long poll that also acknowledges.

Never on the hot path. While control is away the last fleet stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import httpx
import msgspec

from homing.core.fleet import Fleet, decode

POLL_TIMEOUT_S = 30.0  # control answers after 15 s at the latest
RETRY_S = 0.5

log = logging.getLogger(__name__)


class Feed:
    """`GET /api/feed?picker=NAME&have=VERSION` again and again. `adopt` gets each new fleet."""

    def __init__(self, control: str, name: str, adopt: Callable[[Fleet], None]) -> None:
        self._url = control.rstrip("/") + "/api/feed"
        self._name = name
        self._adopt = adopt
        self._have = ""
        self.connected = False

    async def run(self) -> None:
        """Until cancelled."""
        async with httpx.AsyncClient(timeout=httpx.Timeout(POLL_TIMEOUT_S, connect=2.0), trust_env=False) as client:
            while True:
                try:
                    await self._poll(client)
                    self._note(connected=True)
                except (httpx.HTTPError, msgspec.DecodeError) as error:
                    self._note(connected=False, why=type(error).__name__)
                    await asyncio.sleep(RETRY_S)

    async def _poll(self, client: httpx.AsyncClient) -> None:
        response = await client.get(self._url, params={"picker": self._name, "have": self._have})
        response.raise_for_status()
        if response.status_code == 200:
            fleet = decode(response.content)
            self._adopt(fleet)
            self._have = fleet.version

    def _note(self, *, connected: bool, why: str = "") -> None:
        if connected != self.connected:
            log.info("control is there" if connected else f"control is away ({why}): the last fleet stays")
        self.connected = connected
