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
        size, hosts = self._size, self._hosts
        if not size:
            return
        start = bisect_left(self._hashes, hashed) % size
        yield hosts[start]
        seen = {hosts[start]}
        for step in range(start + 1, start + size):
            host = hosts[step if step < size else step - size]
            if host not in seen:
                yield host
                seen.add(host)
                if len(seen) == self._count:
                    return
