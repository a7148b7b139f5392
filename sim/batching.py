"""The engine with a time model: continuous batching as vLLM's V1 scheduler does it (vllm/v1/core/sched/scheduler.py).

Time passes in steps. Each step has a budget of tokens; running sequences take theirs first, then waiting ones are
admitted in order of arrival. A long prompt is computed in chunks, beside the decodes of others. A running sequence
that gets no memory preempts the one admitted last, which starts again at the head of the queue. A sequence whose
tokens are all computed gets one new token at the end of the step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from homing.sim.engine import Counters
from homing.sim.prefix_cache import PrefixCache
from homing.sim.sequence import FinishReason, Sequence
from homing.sim.slots import Slots
from homing.sim.time_model import StepLoad, TimeModel

# A loop that is late by more than this lets simulated time stand still, rather than run after it without end.
MAX_LAG_S = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """vLLM's flags of the same names."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class Step:
    """What runs until `end_s`: sequences, and how many tokens of each."""

    end_s: float
    tokens: dict[Sequence, int]


class BatchingEngine:
    def __init__(
        self, cache: PrefixCache, time_model: TimeModel, limits: Limits, *, prefix_caching: bool = True
    ) -> None:
        self.cache = cache
        self.counters = Counters()
        self.slowdown = 1.0
        self._time_model = time_model
        self._limits = limits
        self._slots = Slots(cache, self.counters, prefix_caching=prefix_caching)
        self._queue: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._step: Step | None = None
        self._idle_until_s: float | None = None  # work came at this time while nothing ran

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def due_s(self) -> float | None:
        return self._idle_until_s if self._step is None else self._step.end_s

    def submit(self, sequence: Sequence, now_s: float) -> None:
        sequence.arrived_s = now_s
        self._queue.append(sequence)
        if self._step is None and self._idle_until_s is None:
            self._idle_until_s = now_s

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.finished:
            return
        sequence.finish_reason = reason
        if sequence.blocks:
            self._running.remove(sequence)
            self._slots.release(sequence)
        else:
            self._queue.remove(sequence)

    def advance(self, now_s: float) -> Iterable[Sequence]:
        """At most one step ends, and at most one begins."""
        due_s = self.due_s
        if due_s is None or due_s > now_s:
            return ()
        moved = self._end(self._step) if self._step is not None else []
        start_s = due_s if now_s - due_s <= MAX_LAG_S else now_s
        self._step = self._begin(start_s)
        # Whoever is left waiting with nothing running came after `start_s`.
        self._idle_until_s = self._queue[0].arrived_s if self._step is None and self._queue else None
        return moved

    def _begin(self, now_s: float) -> Step | None:
        scheduled: dict[Sequence, int] = {}
        budget = self._limits.max_num_batched_tokens
        budget, preempted = self._schedule_running(scheduled, budget)
        if not preempted:
            self._schedule_waiting(scheduled, budget, now_s)
        if not scheduled:
            return None
        load = StepLoad.of([(sequence.computed, tokens) for sequence, tokens in scheduled.items()])
        return Step(now_s + self._time_model.step_s(load) * self.slowdown, scheduled)

    def _schedule_running(self, scheduled: dict[Sequence, int], budget: int) -> tuple[int, bool]:
        """The budget that is left, and whether a sequence lost its memory."""
        preempted = False
        index = 0
        while index < len(self._running) and budget > 0:
            sequence = self._running[index]
            tokens = min(len(sequence.tokens) - sequence.computed, budget)
            while not self._slots.grow(sequence, sequence.computed + tokens):
                preempted = True
                if self._preempt_last() is sequence:
                    return budget, preempted
            self._slots.commit(sequence, sequence.computed + tokens)
            scheduled[sequence] = tokens
            budget -= tokens
            index += 1
        return budget, preempted

    def _preempt_last(self) -> Sequence:
        victim = self._running.pop()
        self._slots.release(victim)
        victim.preemptions += 1
        self.counters.preemptions += 1
        self._queue.appendleft(victim)
        return victim

    def _schedule_waiting(self, scheduled: dict[Sequence, int], budget: int, now_s: float) -> None:
        while self._queue and budget > 0 and len(self._running) < self._limits.max_num_seqs:
            sequence = self._queue[0]
            if sequence.arrived_s > now_s:
                return  # the loop is late, and simulated time is still before its arrival
            found = self._slots.find(sequence)
            reused = len(found) * self.cache.shape.block_size
            tokens = min(len(sequence.tokens) - reused, budget)
            # The whole prompt must fit, not only its first chunk: or sequences would preempt each other in turn.
            if not self._slots.fits(len(sequence.tokens), found):
                return
            self._slots.admit(sequence, found, reused + tokens)
            self._slots.commit(sequence, reused + tokens)
            self._queue.popleft()
            self._running.append(sequence)
            if sequence.scheduled_s is None:
                sequence.scheduled_s = now_s
            scheduled[sequence] = tokens
            budget -= tokens

    def _end(self, step: Step) -> list[Sequence]:
        moved = []
        for sequence, tokens in step.tokens.items():
            if sequence.finished:
                continue
            sequence.computed += tokens
            if sequence.computed < len(sequence.tokens):
                continue  # its prompt is not done
            sequence.emit(step.end_s)
            if (reason := sequence.complete) is not None:
                self.finish(sequence, reason)
            moved.append(sequence)
        return moved
