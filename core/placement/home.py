"""Which replica a request goes to, and why.

A known session goes home. An id that the client chose goes to the hash's owner, so that Envoy alone would do the same.
A session that begins here is placed by cost and gets an id whose hash is that place. What cannot go home goes to the
next on the hash, and stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from homing.core.fleet import Replica
from homing.core.placement import cost, filters
from homing.core.placement.load import Load, Place
from homing.core.placement.minting import mint
from homing.core.placement.pools import CompiledPool
from homing.core.session import Homes, SessionKey


class Reason(StrEnum):
    """Why a request went where it went: the values of x-homing-decision that pickers set (docs/headers.md)."""

    NEW = "new"  # a session that begins: placed by cost, its id minted to fit the hash
    PLACED = "placed"  # a client's id whose owner takes no new sessions, or an id that could not be minted: pinned
    HOME = "home"  # a known session, at home
    HASH = "hash"  # a client's id seen for the first time (or after a restart): the hash's owner
    MOVED = "moved"  # its home cannot serve it any more: now lives with the next on the hash


@dataclass(frozen=True, slots=True)
class Decision:
    """`endpoints` in the order in which Envoy is to try them; `session` when a new id was minted.

    `ref` is the session's digest in the table of homes: Envoy's access log brings it back with the outcome.
    """

    reason: Reason
    place: Place
    endpoints: tuple[str, ...]
    ref: bytes
    session: bytes | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is known of a request when it is to be placed. `given`: the client sent the session's id."""

    key: SessionKey
    given: bool


class Placer:
    """Holds what placement remembers: homes and load. `break_tie` picks an index below n, at random in production."""

    __slots__ = ("_break_tie", "_secret", "homes", "load")

    def __init__(self, homes: Homes, load: Load, secret: bytes, break_tie: Callable[[int], int]) -> None:
        self.homes = homes
        self.load = load
        self._secret = secret
        self._break_tie = break_tie

    def place(self, pool: CompiledPool, arrival: Arrival, now: float) -> Decision | None:
        """None when no replica is fit: then Envoy's panic decides. Does not count the request as in flight."""
        if not pool.members:
            return None
        if not arrival.given:
            return self._begin(pool, arrival.key, now)
        digest = arrival.key.digest(pool.pool.id, self._secret)
        reason, target = self._resident(pool, arrival.key, self.homes.get(digest, now))
        self.homes.put(digest, target.id, now)
        return self._decision(pool, reason, target, arrival.key.text, digest)

    def served_by(self, pool: CompiledPool, ref: bytes, replica_id: str, now: float) -> bool:
        """Envoy's log says who really served. Where that is not the home any more, the session lives there now; True
        if that changed anything. A ref that is not ours (a sibling's, an ended session's) changes nothing."""
        home = self.homes.get(ref, now)
        if home is None or home == replica_id or pool.member(replica_id) is None:
            return False
        self.homes.put(ref, replica_id, now)
        return True

    def _resident(self, pool: CompiledPool, key: SessionKey, home_id: str | None) -> tuple[Reason, Replica]:
        if home_id is not None and (home := pool.member(home_id)) is not None and filters.serves_its_own(home):
            return Reason.HOME, home
        reason = Reason.HASH if home_id is None else Reason.MOVED
        for rank, candidate in enumerate(pool.walk(key.text)):
            if filters.takes_new(candidate):
                return (reason if rank == 0 or reason is Reason.MOVED else Reason.PLACED), candidate
        return reason, pool.members[0] if (owner := pool.owner(key.text)) is None else owner

    def _begin(self, pool: CompiledPool, key: SessionKey, now: float) -> Decision:
        target = self._cheapest(pool)
        prefix = key.text[: len(key.text) - len(key.session)]
        minted = mint(key.session, prefix, pool.table, pool.members.index(target))
        session = minted if minted is not None else key.session
        text = prefix + session
        digest = SessionKey(key.tenant, session, text).digest(pool.pool.id, self._secret)
        self.homes.put(digest, target.id, now)
        reason = Reason.NEW if minted is not None else Reason.PLACED
        return self._decision(pool, reason, target, text, digest, session)

    def _cheapest(self, pool: CompiledPool) -> Replica:
        candidates = [r for r in pool.members if filters.takes_new(r)] or list(pool.members)
        costs = [cost.in_flight(pool.pool.id, r, self.load) for r in candidates]
        least = min(costs)
        best = [r for r, c in zip(candidates, costs, strict=True) if c == least]
        return best[self._break_tie(len(best))]

    def _decision(
        self,
        pool: CompiledPool,
        reason: Reason,
        target: Replica,
        text: bytes,
        ref: bytes,
        session: bytes | None = None,
    ) -> Decision:
        endpoints = (target.address, *(r.address for r in self._spares(pool, target, text)))
        return Decision(reason, (pool.pool.id, target.id), endpoints, ref, session)

    def _spares(self, pool: CompiledPool, target: Replica, text: bytes) -> Iterator[Replica]:
        """Where a retry goes: the next on the hash, which is also where Envoy alone will send the session then."""
        for candidate in pool.walk(text):
            if candidate.address != target.address and filters.takes_new(candidate):
                yield candidate
                return
