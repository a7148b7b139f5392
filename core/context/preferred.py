"""Which model a session is held with: the one that it began with, until the client names another twice in a row.

One request for another model is a side request (a title, a summary by a smaller one), and moves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preference:
    """`other`: the pool that was named last, if it is not the preferred one."""

    pool_id: str
    other: str | None
    used_at: float

    def after(self, pool_id: str, now: float) -> Preference:
        """With one more request, which named that pool."""
        if pool_id == self.pool_id or pool_id == self.other:
            return Preference(pool_id, None, now)
        return Preference(self.pool_id, pool_id, now)


class Preferred:
    """Preferences by session, bounded in number and idle time. Times are seconds of any monotonic clock."""

    __slots__ = ("_entries", "_max", "_ttl_s")

    def __init__(self, ttl_s: float = 0.0, max_sessions: int = 0) -> None:
        self.limit(ttl_s, max_sessions)
        self._entries: OrderedDict[bytes, Preference] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def limit(self, ttl_s: float, max_sessions: int) -> None:
        self._ttl_s, self._max = ttl_s, max_sessions

    def get(self, session: bytes, now: float) -> str | None:
        known = self._entries.get(session)
        return known.pool_id if known is not None and now - known.used_at < self._ttl_s else None

    def note(self, session: bytes, pool_id: str, now: float) -> None:
        """The session has a request for that pool."""
        known = self._entries.pop(session, None)
        if known is None or now - known.used_at >= self._ttl_s:
            self._entries[session] = Preference(pool_id, None, now)
        else:
            self._entries[session] = known.after(pool_id, now)
        for _ in range(2):  # a few at a time, so that no single request pays for many
            first = next(iter(self._entries))
            if len(self._entries) <= self._max and now - self._entries[first].used_at < self._ttl_s:
                return
            del self._entries[first]

    def forget(self, session: bytes) -> None:
        self._entries.pop(session, None)
