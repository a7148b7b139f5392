"""Who changed what by the API, and when. The newest are kept in memory, all of them in the state and in the log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger(__name__)

MAX_ENTRIES = 10_000
MAX_UNKEPT = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """One write. `at_s` since 1970; `who`: the address it came from; `what`: the action; `target`: pool/replica."""

    at_s: float
    who: str
    what: str
    target: str
    details: str = ""


class Store(Protocol):
    async def put_audit(self, entry: Entry) -> None: ...


class Audit:
    """The log of writes."""

    def __init__(self, store: Store, now_s: Callable[[], float]) -> None:
        self._store = store
        self._now_s = now_s
        self._entries: deque[Entry] = deque(maxlen=MAX_ENTRIES)
        self._unkept: deque[Entry] = deque(maxlen=MAX_UNKEPT)

    @property
    def all(self) -> tuple[Entry, ...]:
        """The oldest first."""
        return (*self._entries, *self._unkept)

    def restore(self, entries: Iterable[Entry]) -> None:
        """All that there are, the oldest first."""
        self._entries = deque(entries, maxlen=MAX_ENTRIES)

    def newest(self, limit: int) -> tuple[Entry, ...]:
        """The newest first."""
        return self.all[::-1][:limit]

    async def write(self, who: str, what: str, target: str, details: str = "", *, now_or_later: bool = False) -> None:
        """Before what it tells of is done. Raises OSError when it cannot be kept: nothing is done unseen. But with
        `now_or_later` it is kept once it can be; until then it is in the log."""
        entry = Entry(self._now_s(), who, what, target, details)
        try:
            await self._store.put_audit(entry)
            self._entries.append(entry)
        except OSError:
            if not now_or_later:
                raise
            self._unkept.append(entry)
        log.info("%s %s %s %s", who, what, target, details)

    async def catch_up(self) -> None:
        """Keeps what could not be kept. Raises OSError while it still cannot."""
        while self._unkept:
            entry = self._unkept[0]
            if entry not in self._entries:  # as one that was kept, though the store did not say so in time
                await self._store.put_audit(entry)
                self._entries.append(entry)
            self._unkept.remove(entry)
