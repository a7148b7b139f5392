"""Points on a circle: a hash belongs to the first point at or after it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping


class Points:
    """`points`: the host of each point. `count`: how many different hosts there are."""

    __slots__ = ("_count", "_hashes", "_hosts", "_size")

    def __init__(self, points: Mapping[int, int], count: int) -> None:
        self._hashes = sorted(points)
        self._hosts = [points[hashed] for hashed in self._hashes]
        self._size = len(points)
        self._count = count

    def at(self, hashed: int) -> int | None:
        if not self._size:
            return None
        return self._hosts[bisect_left(self._hashes, hashed) % self._size]

    def walk(self, hashed: int) -> Iterator[int]:
        """Distinct hosts, as further points come."""
        start = bisect_left(self._hashes, hashed)
        seen: set[int] = set()
        for step in range(self._size):
            host = self._hosts[(start + step) % self._size]
            if host not in seen:
                seen.add(host)
                yield host
                if len(seen) == self._count:
                    return
