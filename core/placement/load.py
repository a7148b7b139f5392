"""What is on its way to each replica: as this picker sees it, and as its siblings say.

A picker's own part is a Vector for each place; pickers send each other theirs every 100 ms, and each adds up what the
others said. A sibling that falls silent counts for nothing after a second: better no news than old news.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

Place = tuple[str, str]
"""(pool id, replica id)"""

VALID_S = 1.0
"""So long a sibling's vectors count without news from it."""


class Vector(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One picker's part in the load of one replica. Fields are only ever added at the end."""

    pending_tokens: float = 0.0  # to be prefilled, for requests whose first token has not come
    in_flight: int = 0
    sessions: int = 0  # active lately
    working_set_tokens: float = 0.0  # their contexts


NOTHING = Vector()


class Load:
    """Requests in flight per replica. One `begin` for each request, one `end` when its answer has ended."""

    __slots__ = ("_in_flight", "_siblings")

    def __init__(self) -> None:
        self._in_flight: defaultdict[Place, int] = defaultdict(int)
        self._siblings: dict[str, tuple[float, Mapping[Place, Vector]]] = {}

    def begin(self, place: Place) -> None:
        self._in_flight[place] += 1

    def end(self, place: Place) -> None:
        left = self._in_flight[place] - 1
        if left > 0:
            self._in_flight[place] = left
        else:
            self._in_flight.pop(place, None)

    def in_flight(self, place: Place) -> int:
        """This picker's own."""
        return self._in_flight.get(place, 0)

    def snapshot(self) -> dict[Place, int]:
        return dict(self._in_flight)

    def vectors(self, now: float) -> dict[Place, Vector]:
        """This picker's own part, for its siblings: nothing of what they said is in it."""
        self._expire(now)
        return {place: Vector(in_flight=n) for place, n in self._in_flight.items()}

    def absorb(self, sibling: str, vectors: Mapping[Place, Vector], now: float) -> None:
        """`sibling` said so at `now`, by this picker's clock; it replaces what it said before."""
        self._expire(now)
        self._siblings[sibling] = (now, vectors)

    def others(self, place: Place) -> Vector:
        """What the siblings have there, added up."""
        parts = [v for _, vectors in self._siblings.values() if (v := vectors.get(place)) is not None]
        return Vector(
            sum(v.pending_tokens for v in parts),
            sum(v.in_flight for v in parts),
            sum(v.sessions for v in parts),
            sum(v.working_set_tokens for v in parts),
        )

    def _expire(self, now: float) -> None:
        for sibling in [s for s, (said, _) in self._siblings.items() if now - said >= VALID_S]:
            del self._siblings[sibling]
