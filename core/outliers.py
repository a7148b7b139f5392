"""Replicas that answer their probes and fail requests: seen by pickers, judged by the control service.

A picker counts in two halves of a window, so that what is old is dropped without a list of all requests. A judge takes
a replica from new sessions when most of its requests fail, or all the last ones (a session leaves with the first one
that Envoy had to try elsewhere, so these may be few beside what went well before); when they are of several sessions
(one request that no engine survives comes again and again to the home of its session); and when it does so much worse
than the rest of its pool (what fails everywhere is not the replica's fault). Never more than half of a pool; for longer
each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from homing.core.fleet import Fleet, Pool
from homing.core.placement.load import Place

HALF_S = 15.0
MOST_SESSIONS = 32
"""That are told apart in one half."""

FAILURES = 5
SESSIONS = 3
SHARE = 0.5
"""So many failures, of so many sessions, and such a share of the requests or one after the other, make a replica
failing."""

WORSE = 2.0
"""So many times the share of the rest of the pool."""

FIRST_S = 30.0
LONGEST_S = 600.0
FORGIVEN_S = 900.0
"""After so long without failing the next time is a first time."""


class Tally(msgspec.Struct):
    """What a picker has seen of one replica lately. `sessions`: those whose requests failed; `run` and `run_sessions`:
    failures since the last request that went well, and their sessions."""

    pool: str
    replica: str
    requests: int
    failures: int
    sessions: int
    run: int = 0
    run_sessions: int = 0

    @property
    def place(self) -> Place:
        return self.pool, self.replica


class Tallies(msgspec.Struct, frozen=True):
    """The form of a picker's GET /outcomes."""

    replicas: tuple[Tally, ...]


@dataclass(slots=True)
class _Half:
    requests: int = 0
    failures: int = 0
    sessions: set[bytes] = field(default_factory=set)
    run: int = 0
    run_sessions: set[bytes] = field(default_factory=set)

    def ended(self, session: bytes, *, failed: bool) -> None:
        self.requests += 1
        if not failed:
            if self.run:
                self.run, self.run_sessions = 0, set()
            return
        self.failures += 1
        self.run += 1
        for sessions in (self.sessions, self.run_sessions):
            if len(sessions) < MOST_SESSIONS:
                sessions.add(session)

    def then(self, later: _Half, place: Place) -> Tally:
        """Both, one after the other."""
        before = self if later.failures == later.requests else _Half()  # else something went well since
        return Tally(
            *place,
            self.requests + later.requests,
            self.failures + later.failures,
            len(self.sessions | later.sessions),
            before.run + later.run,
            len(before.run_sessions | later.run_sessions),
        )


class Window:
    """Of one picker. Times by any clock that goes forward."""

    __slots__ = ("_began", "_now", "_old")

    def __init__(self) -> None:
        self._began = float("-inf")
        self._now: dict[Place, _Half] = {}
        self._old: dict[Place, _Half] = {}

    def ended(self, place: Place, session: bytes, now: float, *, failed: bool) -> None:
        """A request there has ended."""
        self._turn(now)
        half = self._now.get(place)
        if half is None:
            half = self._now[place] = _Half()
        half.ended(session, failed=failed)

    def tallies(self, now: float) -> Tallies:
        self._turn(now)
        none, places = _Half(), dict.fromkeys((*self._old, *self._now))
        return Tallies(tuple(self._old.get(p, none).then(self._now.get(p, none), p) for p in places))

    def _turn(self, now: float) -> None:
        if now - self._began >= HALF_S:
            self._old = self._now if now - self._began < 2 * HALF_S else {}
            self._now, self._began = {}, now


@dataclass(frozen=True, slots=True)
class Record:
    """Of a replica that failed: until when it takes no new sessions, and how often that was so in a row."""

    until_s: float
    times: int


def judged(
    fleet: Fleet, seen: Mapping[Place, Tally], records: Mapping[Place, Record], now: float
) -> dict[Place, Record]:
    """The records from now on. A replica is failing while its `until_s` is not over."""
    known = {(pool.id, r.id) for pool in fleet.pools for r in pool.replicas}
    kept = {p: r for p, r in records.items() if p in known and now - r.until_s < FORGIVEN_S}
    for pool in fleet.pools:
        failing = sum((pool.id, r.id) in kept and now < kept[pool.id, r.id].until_s for r in pool.replicas)
        for place in sorted(_bad(pool, seen)):
            before = kept.get(place)
            if before is not None and now < before.until_s:
                continue
            if 2 * (failing + 1) > len(pool.replicas):
                break
            times = before.times + 1 if before is not None else 1
            kept[place] = Record(now + min(FIRST_S * 2 ** (times - 1), LONGEST_S), times)
            failing += 1
    return kept


def _bad(pool: Pool, seen: Mapping[Place, Tally]) -> list[Place]:
    tallies = [seen[pool.id, r.id] for r in pool.replicas if (pool.id, r.id) in seen]
    requests, failures = sum(t.requests for t in tallies), sum(t.failures for t in tallies)

    def is_bad(tally: Tally) -> bool:
        most = tally.failures >= max(FAILURES, SHARE * tally.requests) and tally.sessions >= SESSIONS
        if not tally.requests or (not most and (tally.run < FAILURES or tally.run_sessions < SESSIONS)):
            return False
        others, failed = requests - tally.requests, failures - tally.failures
        return others > 0 and tally.failures / tally.requests >= WORSE * failed / others

    return [tally.place for tally in tallies if is_bad(tally)]


def added(tallies: list[Tally]) -> dict[Place, Tally]:
    """What several pickers have seen, together."""
    total: dict[Place, Tally] = {}
    for tally in tallies:
        before = total.get(tally.place)
        if before is None:
            total[tally.place] = msgspec.structs.replace(tally)
        else:
            before.requests += tally.requests
            before.failures += tally.failures
            before.sessions += tally.sessions
            before.run += tally.run
            before.run_sessions += tally.run_sessions
    return total
