"""What is on its way to each replica, as this picker sees it."""

from __future__ import annotations

from collections import defaultdict

Place = tuple[str, str]
"""(pool id, replica id)"""


class Load:
    """Requests in flight per replica. One `begin` for each request, one `end` when its answer has ended."""

    __slots__ = ("_in_flight",)

    def __init__(self) -> None:
        self._in_flight: defaultdict[Place, int] = defaultdict(int)

    def begin(self, place: Place) -> None:
        self._in_flight[place] += 1

    def end(self, place: Place) -> None:
        left = self._in_flight[place] - 1
        if left > 0:
            self._in_flight[place] = left
        else:
            self._in_flight.pop(place, None)

    def in_flight(self, place: Place) -> int:
        return self._in_flight.get(place, 0)

    def snapshot(self) -> dict[Place, int]:
        return dict(self._in_flight)
