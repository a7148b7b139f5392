"""What a picker learns from what became of its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import structs

from homing.core.outliers import Window
from homing.core.placement.decision import Ref
from homing.core.placement.home import Placer
from homing.core.placement.load import Place
from homing.core.placement.pools import CompiledPool
from homing.ext_proc.counts import Counts
from homing.ext_proc.outcomes import Outcome


class TtftSink(Protocol):
    """Where times to the first byte go, in seconds."""

    def observe(self, place: Place, seconds: float) -> None: ...

    def forget(self, place: Place) -> None:
        """The replica is gone for good."""


class Hearing:
    __slots__ = ("_clock", "_counts", "_placer", "_ttft", "window")

    def __init__(self, placer: Placer, counts: Counts, ttft: TtftSink, clock: Callable[[], float]) -> None:
        self._placer = placer
        self._counts = counts
        self._ttft = ttft
        self._clock = clock
        self.window = Window()

    def hear(self, pool: CompiledPool, outcome: Outcome) -> None:
        """A request of `pool` has ended."""
        ref, counts = Ref.decode(outcome.ref), self._counts
        if ref is not None and outcome.replica_id not in pool.by_id:
            outcome = structs.replace(outcome, replica_id=pool.served(outcome.replica_id, ref.told))
        if ref is not None:
            self._tally(outcome, ref)
        counts.outcomes[outcome.pool_id, outcome.replica_id, f"{outcome.status // 100}xx"] += 1
        if outcome.attempts > 1:
            counts.retried[outcome.pool_id] += 1
        if outcome.ttft_s is not None and outcome.replica_id:
            self._ttft.observe((outcome.pool_id, outcome.replica_id), outcome.ttft_s)
        if outcome.decision == "fallback":
            counts.fallbacks[outcome.pool_id] += 1
        elif ref is not None and self._rehomed(pool, outcome, ref):
            counts.rehomed[outcome.pool_id] += 1

    def _tally(self, outcome: Outcome, ref: Ref) -> None:
        """Who served, and who was meant to and did not. A client that has gone (status 0) says nothing of either."""
        now, pool_id, served = self._clock(), outcome.pool_id, outcome.replica_id
        if outcome.attempts > 1 and ref.told != served:
            self.window.ended((pool_id, ref.told), ref.digest, now, failed=True)
        if outcome.status and served:
            self.window.ended((pool_id, served), ref.digest, now, failed=outcome.status >= 500)

    def _rehomed(self, pool: CompiledPool, outcome: Outcome, ref: Ref) -> bool:
        """Where it was served well. One that failed everywhere is at home nowhere else."""
        if outcome.status >= 500:
            return False
        if outcome.ttft_s is not None and outcome.status < 300 and outcome.replica_id == ref.told:
            if outcome.attempts <= 1 and outcome.streamed:
                self._placer.first_token(pool, ref, outcome.ttft_s, self._clock())
            return False
        return self._placer.served_by(pool, ref, outcome.replica_id, self._clock())
