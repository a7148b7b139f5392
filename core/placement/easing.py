"""Which replicas get fewer new sessions than placement would give them: those that came a moment ago, since all of a
pool's new sessions would go to the one that is empty, and cold; and those of which operators want it so.

Of the sessions that begin, such a replica is a candidate for a share only. Those that live there stay: the hash does
not know of it, and Envoy's weights are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from homing.core.fleet import Replica
from homing.core.placement.asked import There
from homing.core.placement.load import Place

FIRST = 0.1
"""The share of a replica that has come this moment."""

FINE = 1_000_000


class Easing:
    """`dice` picks a number below n, at random."""

    __slots__ = ("_came", "_dice")

    def __init__(self, dice: Callable[[int], int]) -> None:
        self._dice = dice
        self._came: dict[Place, float] = {}

    def came(self, place: Place, now: float) -> None:
        """It takes new sessions from now on."""
        self._came[place] = now

    def gone(self, place: Place) -> None:
        self._came.pop(place, None)

    def share(self, pool_id: str, replica: Replica, slow_start_s: float, now: float) -> float:
        """Of the pool's new sessions, from 0 to 1, that it may be given at most."""
        came = self._came.get((pool_id, replica.id))
        if came is None:
            return replica.share
        if now - came >= slow_start_s:
            del self._came[pool_id, replica.id]
            return replica.share
        return min(replica.share, FIRST + (1 - FIRST) * max(0.0, now - came) / slow_start_s)

    def let_in(self, pool_id: str, able: Sequence[There], slow_start_s: float, now: float) -> list[There]:
        """Those that are candidates this time; all of them if none is."""
        shares = [self.share(pool_id, there.replica, slow_start_s, now) for there in able]
        chosen = [
            there for there, share in zip(able, shares, strict=True) if share >= 1 or self._dice(FINE) < share * FINE
        ]
        return chosen or list(able)

    def eases(self, limited: bool) -> bool:
        """Whether there is anything to be done. `limited`: a replica of the pool has a share."""
        return limited or bool(self._came)
