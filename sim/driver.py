"""Runs an engine on the event loop's clock with one timer for everything, and wakes who waits for tokens."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from homing.sim.engine import Engine
from homing.sim.prefix_cache import CacheEvent
from homing.sim.sequence import FinishReason, Sequence


class Observer(Protocol):
    """Hears of every token; the metrics."""

    def token(self, sequence: Sequence) -> None: ...

    def finished(self, sequence: Sequence, now_s: float) -> None: ...


class Driver:
    """`time_scale` simulated seconds pass in one real second. Must live on one running loop."""

    def __init__(self, engine: Engine, observer: Observer, *, time_scale: float = 1.0) -> None:
        self.engine = engine
        self._observer = observer
        self._scale = time_scale
        self._loop = asyncio.get_running_loop()
        self._wakers: dict[Sequence, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._closed = False
        self.on_cache_events: Callable[[list[CacheEvent]], None] | None = None

    @property
    def now_s(self) -> float:
        return self._loop.time() * self._scale

    def submit(self, sequence: Sequence, wake: Callable[[], None]) -> None:
        """`wake` is called whenever the sequence got a token or ended. It must not block or raise."""
        if self._closed:
            sequence.finish_reason = FinishReason.ABORT
            wake()
            return
        self._wakers[sequence] = wake
        self.engine.submit(sequence, self.now_s)
        self._tell_cache_events()
        self._arm()

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.finished:
            return
        self.engine.finish(sequence, reason)
        self._report(sequence, self.now_s)
        self._tell_cache_events()
        self._arm()

    def close(self) -> None:
        """End every sequence, and each that comes later."""
        self._closed = True
        for sequence in list(self._wakers):
            self.finish(sequence, FinishReason.ABORT)

    def lose_cache(self) -> None:
        """Nothing that was computed is found again."""
        self.engine.cache.clear()
        self._tell_cache_events()

    def _tell_cache_events(self) -> None:
        if self.on_cache_events is not None and (events := self.engine.cache.drain_events()):
            self.on_cache_events(events)

    def _advance(self) -> None:
        self._timer = None
        now_s = self.now_s
        for sequence in self.engine.advance(now_s):
            if sequence.finish_reason is not FinishReason.ABORT:
                self._observer.token(sequence)
            self._report(sequence, now_s)
        self._tell_cache_events()
        self._arm()

    def _report(self, sequence: Sequence, now_s: float) -> None:
        if not sequence.finished:
            self._wakers[sequence]()
            return
        self._observer.finished(sequence, now_s)
        self._wakers.pop(sequence)()

    def _arm(self) -> None:
        due_s = self.engine.due_s
        if self._timer is not None:
            if due_s == self._timer_due_s:
                return
            self._timer.cancel()
            self._timer = None
        if due_s is not None:
            self._timer_due_s = due_s
            delay_s = max(due_s / self._scale - self._loop.time(), 0.0)
            # uvloop rounds to milliseconds, and would else wake too early, again and again.
            self._timer = self._loop.call_later(math.ceil(delay_s * 1000) / 1000, self._advance)
