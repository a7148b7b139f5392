"""The usual request: a known session stays at home. What `Placer.place` would decide for it, in one pass: one digest,
one look at the table of homes, one at the load, and nothing made that is not needed.

Anything else (no home, one that is not fit, one that would better be left, a LoRA adapter) is for `place` to weigh.
That both decide and remember the same is tested with the same requests put to both.
"""

from __future__ import annotations

from homing.core.placement.decision import Decision, Reason, Ref
from homing.core.placement.pools import CompiledPool
from homing.core.placement.weighing import Scales, content
from homing.core.session import Digesters, Homes, SessionKey


class Staying:
    __slots__ = ("_digesters", "_homes", "_scales")

    def __init__(self, homes: Homes, scales: Scales, digesters: Digesters) -> None:
        self._homes = homes
        self._scales = scales
        self._digesters = digesters

    def begin(self, pool: CompiledPool, key: SessionKey, size_bytes: int, now: float) -> Decision | None:
        """None, and nothing has changed, where it is not so simple. Else it is on its way: as `place` and `begun`."""
        pool_id = pool.pool.id
        digest = self._digesters.of(pool_id, key)
        last = self._homes.last(digest, now)
        if last is None:
            return None
        home_id, used, before = last
        home = pool.member(home_id)
        if home is None:
            return None
        scales, place = self._scales, (pool_id, home_id)
        learned, settings, meter = scales.learned(pool_id), scales.settings(pool_id), scales.load.meter(place)
        tokens = size_bytes / learned.bytes_per_token if size_bytes else before + learned.uncached
        expected = max(0.0, min(before, tokens - 1.0))
        cached = expected * meter.retention.kept
        meter.assumed_speed = learned.prefill_tokens_per_s * home.weight
        speed = meter.tokens_per_s
        in_queue = meter.in_queue(speed, now)
        waiting = in_queue + meter.others_pending + meter.foreign
        if not content(meter, learned, settings, tokens, cached, speed, waiting):
            return None
        heir = pool.heir(key.text, home)
        meter.activity.used(tokens, now, (used, before))
        self._homes.put(digest, home_id, now, None if heir is None else heir.id, int(tokens))
        meter.retention.sent(tokens, expected)
        uncached = tokens - cached
        learned.continued(uncached)
        endpoints = (home.address,) if heir is None else (home.address, heir.address)
        to_come = int(waiting + uncached)
        meter.sent(size_bytes)
        meter.in_flight += 1
        meter.context_tokens += tokens
        meter.uncached_tokens += uncached
        load = scales.load
        load.underway.add(digest, to_come, meter, meter.queue.append(uncached, now, in_queue), now)
        load.begun(uncached)
        ref = Ref(digest, home_id, to_come)
        return Decision(Reason.HOME, place, endpoints, ref, None, uncached, size_bytes, home.rank, tokens)
