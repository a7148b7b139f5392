"""Weighs replicas against each other for one request: who may take it, what each would cost, who costs least.

A pool of more than `Settings.sample` replicas is not looked at whole: a random sample of that size, with the session's
home, the hash's owner and whoever holds some of the prompt, is as good as all of them to within a few percent (the best
of 32 random ones is among the best tenth with a probability of 0.97) and costs the same at any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from homing.core.fleet import Replica
from homing.core.placement import cost, filters
from homing.core.placement.asked import Asked, There
from homing.core.placement.cost.eviction import USABLE
from homing.core.placement.decision import Decision
from homing.core.placement.easing import Easing
from homing.core.placement.learned import Learned
from homing.core.placement.load import Load, Meter, Place
from homing.core.placement.pools import CompiledPool
from homing.core.placement.settings import Settings

SLOW = 0.5
"""Below this speed, against the pool's mean, a home is weighed even where nothing waits there."""

DOUBT = 1.3
"""A replica that seems up to so much faster or slower than its weight says is taken for as fast as that."""


class Weighed(msgspec.Struct, frozen=True):
    """One replica and its cost."""

    there: There
    cost: float


class Scales:
    """Load, and per pool its constants and what was learned. `break_tie` picks an index below n, at random."""

    __slots__ = ("_break_tie", "_learned", "_settings", "easing", "load")

    def __init__(self, load: Load, break_tie: Callable[[int], int]) -> None:
        self.load = load
        self._break_tie = break_tie
        self.easing = Easing(break_tie)
        self._settings: dict[str, Settings] = {}
        self._learned: dict[str, Learned] = {}

    def configure(self, settings: Mapping[str, Settings]) -> None:
        """The constants by pool. A pool that is not named has the defaults."""
        self._settings = dict(settings)
        for pool_id, learned in self._learned.items():
            learned.configure(self.settings(pool_id))

    def settings(self, pool_id: str) -> Settings:
        return self._settings.get(pool_id) or DEFAULTS

    def learned(self, pool_id: str) -> Learned:
        learned = self._learned.get(pool_id)
        if learned is None:
            learned = self._learned[pool_id] = Learned(self.settings(pool_id))
        return learned

    def meter(self, pool_id: str, replica: Replica) -> Meter:
        meter = self.load.meter((pool_id, replica.id))
        meter.assumed_speed = self.learned(pool_id).prefill_tokens_per_s * replica.weight
        return meter

    def begun(self, decision: Decision, now: float) -> None:
        """A request is on its way. What its ref says names it to `first_token`."""
        meter, ref = self.load.meter(decision.place), decision.ref
        meter.sent(decision.size_bytes)
        mark = meter.begin(decision.uncached, now, decision.tokens)
        self.load.underway.add(ref.digest, ref.tokens, meter, mark, now)
        self.load.begun(decision.uncached)

    def first_token(
        self, pool_id: str, replica: Replica, digest: bytes, expected: int, ttft_s: float, now: float, *, at_most: bool
    ) -> None:
        """Its first token came after `ttft_s`, where `expected` tokens (or fewer: `at_most`) were to be prefilled until
        then. Any picker's request teaches the replica's speed; who sent it has its queue corrected."""
        meter = self.meter(pool_id, replica)
        if at_most:
            self.learned(pool_id).first_prompt(expected, ttft_s)
        meter.speed.observe(expected, ttft_s, at_most=at_most, assumed=meter.assumed_speed)
        self.load.underway.first_token(digest, expected, ttft_s, now)

    def engine_told(
        self, place: Place, *, waiting: int, cache_tokens: float | None, queried: float, found: float, now: float
    ) -> None:
        """A replica's own counters: requests that wait there, the size of its cache; since it was asked before, the
        prompt tokens that have come, and those found in the cache. The slow truth, about a second old; without it all
        is estimated."""
        meter, learned = self.load.meter(place), self.learned(place[0])
        meter.cache_tokens = cache_tokens or meter.cache_tokens
        meter.engine_waits(waiting, learned.work, now)
        meter.retention.told(queried, found)
        learned.counted(queried, meter.take_bytes())

    def kept(self, pool_id: str, replica: Replica) -> float:
        """The share of what it was sent before that it should still have in its cache."""
        return self.load.meter((pool_id, replica.id)).retention.kept

    def content(self, pool_id: str, asked: Asked, home: Replica, now: float) -> bool:
        """Whether leaving home is out of the question: what waits there and will not fit is less than the least that a
        move costs, and nobody holds more of the prompt, so nobody else need be looked at. True for most requests."""
        held = asked.held
        if held and max(held.values()) > held.get(home.id, 0):
            return False
        meter, learned = self.meter(pool_id, home), self.learned(pool_id)
        speed, waiting = meter.tokens_per_s, meter.waiting(now)
        return content(meter, learned, asked.settings, asked.tokens, asked.home_cached, speed, waiting)

    def overloaded(self, pool: CompiledPool, now: float) -> float | None:
        """Seconds until the replica that is first has worked off what is too much, if all have more waiting than
        `reject_above_tokens`; None while one has not, or there is no such limit."""
        limit = self.settings(pool.pool.id).reject_above_tokens
        if limit <= 0 or not pool.members:
            return None
        soonest = math.inf
        for replica in pool.newcomers or pool.members:
            meter = self.meter(pool.pool.id, replica)
            excess = meter.waiting(now) - limit
            if excess <= 0:
                return None
            soonest = min(soonest, excess / meter.tokens_per_s)
        return soonest

    def weigh(self, pool: CompiledPool, asked: Asked, now: float, *, learn: bool = True) -> list[Weighed]:
        """Everybody who may take the request, in no order; empty when nobody can serve it. Not to `learn` the pool's
        mean speed from it leaves all as it was."""
        pool_id = pool.pool.id
        candidates = [self.there(pool_id, r, asked, now) for r in self._candidates(pool, asked)]
        home = asked.home
        able = filters.newcomers(asked, [t for t in candidates if t.replica.id != home])
        if learn and self.easing.eases(pool.limited):
            able = self.easing.let_in(pool_id, able, asked.settings.slow_start_s, now)
        if home is not None:
            able += [t for t in candidates if t.replica.id == home and filters.fit(asked, t)]
        if not able:
            return []
        learned = self.learned(pool_id)
        mean = _pace(able)
        if learn:
            learned.prefill_tokens_per_s = mean
        others = [t.waiting for t in able if t.replica.id != home]
        asked.crowd = sum(others) / max(learned.work, 1.0) / max(len(others), 1)
        asked.fewest_sessions = min([t.sessions / t.speed for t in able])
        return [Weighed(t, cost.total(asked, t)) for t in able]

    def least(self, weighed: Sequence[Weighed]) -> There:
        """The cheapest; one of them at random where there are several."""
        least = min([w.cost for w in weighed])
        best = [w.there for w in weighed if w.cost == least]
        return best[self._break_tie(len(best))] if len(best) > 1 else best[0]

    def there(self, pool_id: str, replica: Replica, asked: Asked, now: float) -> There:
        """The replica as it is to this request. Its speed is in tokens per second still."""
        meter = self.meter(pool_id, replica)
        at_home = replica.id == asked.home
        if asked.held is not None:
            cached = min(float(asked.held.get(replica.id, 0)), max(0.0, asked.tokens - 1.0))
        else:
            cached = asked.home_cached if at_home else asked.anywhere_cached
        activity, speed = meter.activity, meter.tokens_per_s
        activity.advance(now)
        working_set = activity.tokens + meter.others_tokens
        return There(
            replica,
            meter.waiting_at(speed, now),
            meter.in_flight + meter.others_in_flight,
            activity.sessions + meter.others_sessions,
            max(0.0, working_set - asked.home_size) if at_home else working_set,
            meter.cache_tokens or asked.settings.cache_tokens,
            cached,
            speed,
            meter.context_tokens + meter.others_context,
        )

    def _candidates(self, pool: CompiledPool, asked: Asked) -> Iterable[Replica]:
        members, size = pool.members, asked.settings.sample
        if len(members) <= size:
            return members
        if asked.subset is not None or asked.adapter is not None:
            members = tuple(
                r
                for r in members
                if (asked.subset is None or r.address in asked.subset)
                and (asked.adapter is None or not r.adapters or asked.adapter in r.adapters)
            )
            if len(members) <= size:
                return members
        newcomers = pool.newcomers if members is pool.members and len(pool.newcomers) > size else members
        chosen = {newcomers[self._break_tie(len(newcomers))].id for _ in range(size)}
        chosen.update(name for name in (asked.home, asked.owner) if name is not None)
        if (held := asked.held) is not None:
            chosen.update(sorted(held, key=held.__getitem__, reverse=True)[:size])
        return [replica for name in chosen if (replica := pool.member(name)) is not None]


def content(
    meter: Meter,
    learned: Learned,
    settings: Settings,
    tokens: float,
    cached: float,
    tokens_per_s: float,
    waiting: float,
) -> bool:
    """Whether a request of `tokens`, of which `cached` are there, has no reason to leave the home of this meter."""
    wanted = meter.activity.tokens + meter.others_tokens
    usable = USABLE * (meter.cache_tokens or settings.cache_tokens)
    evicted = 0.0
    if wanted > usable:
        evicted = settings.eviction_factor * learned.further_turns * tokens * (1.0 - usable / wanted)
    speed = tokens_per_s / learned.prefill_tokens_per_s
    least = min(settings.leave_factor, settings.roomy_leave_factor)
    return speed >= SLOW and waiting + evicted <= speed * (settings.leave_tokens + least * cached)


def _pace(able: Sequence[There]) -> float:
    """Sets speeds against the mean of those that are weighed, which it returns, in tokens per second for each unit of
    weight. What is learned of a speed is rough, so a difference counts only as far as it goes beyond DOUBT."""
    mean = sum([t.speed / t.replica.weight for t in able]) / len(able)
    for there in able:
        pace = there.speed / there.replica.weight / mean
        doubted = min(1.0, pace * DOUBT) if pace < 1.0 else max(1.0, pace / DOUBT)
        there.speed = doubted * there.replica.weight
    return mean


DEFAULTS = Settings()
