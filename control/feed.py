"""How the pickers hear of the fleet: a long poll that answers when there is another version than they have.

The poll is also the acknowledgement: who asks with `have=V` works with V.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from homing.control.latest import Latest
from homing.core.fleet import Fleet, encode

log = logging.getLogger(__name__)

MAX_PICKERS = 256
BETWEEN_POLLS_S = 2.0  # a picker applies what it got and asks again well within this
FORGOTTEN_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Edition:
    """A fleet as it goes over the wire."""

    version: str
    body: bytes


@dataclass(slots=True)
class Picker:
    """A picker that polls. Times by the clock of the feed."""

    have: str
    seen_at_s: float
    polls: int = 0  # that are open now
    late: bool = False  # it let a wait run out, and is not waited for until it has caught up


class Feed:
    """Serves the newest fleet to all pickers. On the loop's thread only."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.late = 0
        """Waits that ran out since the start, by picker."""
        self._now_s = now_s
        self._newest: Latest[Edition | None] = Latest(None)
        self._progress: Latest[None] = Latest(None)
        self._pickers: dict[str, Picker] = {}
        self._closed = False

    @property
    def version(self) -> str:
        """Of the newest fleet; empty before the first."""
        return self._newest.value.version if self._newest.value else ""

    @property
    def pickers(self) -> Mapping[str, Picker]:
        """Those heard of in the last minute, by name."""
        self._forget()
        return self._pickers

    def publish(self, fleet: Fleet) -> None:
        if fleet.version != self.version:
            self._newest.set(Edition(fleet.version, encode(fleet)))

    def close(self) -> None:
        """Answers every open poll, so that the server can end."""
        self._closed = True
        self._newest.set(self._newest.value)

    async def poll(self, name: str, have: str, timeout_s: float) -> Edition | None:
        """The newest fleet as soon as it is not `have`; None after `timeout_s`."""
        picker = self._noted(name, have)
        picker.polls += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    return await self._other_than(have)
        finally:
            picker.polls -= 1
            picker.seen_at_s = self._now_s()
        return None

    async def wait_applied(self, version: str, timeout_s: float) -> bool:
        """Whether every picker that is there works with `version` (the newest) within `timeout_s`.

        A picker that is late is waited for once, not at every change.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._behind(version):
                    await self._progress.after(self._progress.serial)
        except TimeoutError:
            for name, picker in self._behind(version).items():
                picker.late = True
                self.late += 1
                log.warning("picker %s has not applied fleet %s in time", name, version)
            return False
        return True

    async def _other_than(self, have: str) -> Edition | None:
        while not self._closed:
            serial, newest = self._newest.serial, self._newest.value
            if newest is not None and newest.version != have:
                return newest
            await self._newest.after(serial)
        return None

    def _noted(self, name: str, have: str) -> Picker:
        self._forget()
        picker = self._pickers.get(name)
        if picker is None:
            picker = Picker(have, self._now_s())
            if len(self._pickers) < MAX_PICKERS:
                self._pickers[name] = picker
        picker.have, picker.seen_at_s = have, self._now_s()
        picker.late = picker.late and have != self.version
        self._progress.set(None)
        return picker

    def _behind(self, version: str) -> dict[str, Picker]:
        here_since = self._now_s() - BETWEEN_POLLS_S
        return {
            name: picker
            for name, picker in self._pickers.items()
            if picker.have != version and not picker.late and (picker.polls or picker.seen_at_s >= here_since)
        }

    def _forget(self) -> None:
        since = self._now_s() - FORGOTTEN_AFTER_S
        self._pickers = {n: p for n, p in self._pickers.items() if p.polls or p.seen_at_s >= since}
