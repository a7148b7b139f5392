"""An engine without a time model: every sequence gets its tokens at fixed times of its own, whatever else runs.

For tests that want long, slow, even streams (`--ttft-ms`, `--itl-ms`). Memory and queueing are real but simple: a
sequence is admitted in order of arrival when its whole length fits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count

from homing.sim.engine import Counters
from homing.sim.prefix_cache import PrefixCache
from homing.sim.sequence import FinishReason, Sequence
from homing.sim.slots import Slots


class PacedEngine:
    """First token `ttft_s` after admission, each further one `itl_s` after the one before."""

    def __init__(
        self, cache: PrefixCache, *, ttft_s: float, itl_s: float, max_num_seqs: int, prefix_caching: bool = True
    ) -> None:
        self.cache = cache
        self.counters = Counters()
        self.slowdown = 1.0
        self._slots = Slots(cache, self.counters, prefix_caching=prefix_caching)
        self._ttft_s = ttft_s
        self._itl_s = itl_s
        self._max_num_seqs = max_num_seqs
        self._queue: deque[Sequence] = deque()
        self._running: dict[Sequence, None] = {}
        self._due: list[tuple[float, int, Sequence]] = []
        self._order = count()  # ties in the heap go by it: sequences have no order
        self._now_s = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def due_s(self) -> float | None:
        self._drop_finished()
        return self._due[0][0] if self._due else None

    def submit(self, sequence: Sequence, now_s: float) -> None:
        sequence.arrived_s = now_s
        self._now_s = now_s
        self._queue.append(sequence)
        self._admit(now_s)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.finished:
            return
        sequence.finish_reason = reason
        if sequence in self._running:
            del self._running[sequence]
            self._slots.release(sequence)
        else:
            self._queue.remove(sequence)
        self._admit(self._now_s)

    def advance(self, now_s: float) -> Iterable[Sequence]:
        """One token at most for each sequence, so that late ones catch up side by side."""
        self._now_s = now_s
        due = []
        while self._due and self._due[0][0] <= now_s:
            due.append(heapq.heappop(self._due))
        moved = []
        for due_s, _, sequence in due:
            if sequence.finished:
                continue
            self._emit(sequence, due_s)
            moved.append(sequence)
            if not sequence.finished:
                heapq.heappush(self._due, (due_s + self._itl_s * self.slowdown, next(self._order), sequence))
        return moved

    def _admit(self, now_s: float) -> None:
        while self._queue and len(self._running) < self._max_num_seqs:
            sequence = self._queue[0]
            length = sequence.prompt_tokens + sequence.max_tokens
            if not self._slots.admit(sequence, self._slots.find(sequence), length):
                return
            self._slots.commit(sequence, sequence.prompt_tokens)
            self._queue.popleft()
            self._running[sequence] = None
            sequence.scheduled_s = now_s
            heapq.heappush(self._due, (now_s + self._ttft_s * self.slowdown, next(self._order), sequence))

    def _emit(self, sequence: Sequence, at_s: float) -> None:
        # A token's KV exists once the next token is computed; the last one's never does.
        self._slots.commit(sequence, len(sequence.tokens))
        sequence.emit(at_s)
        if (reason := sequence.complete) is not None:
            self.finish(sequence, reason)

    def _drop_finished(self) -> None:
        while self._due and self._due[0][2].finished:
            heapq.heappop(self._due)
