"""What the driver and the metrics need of an engine. Engines know no clock: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from homing.sim.prefix_cache import PrefixCache
from homing.sim.sequence import FinishReason, Sequence


@dataclass(slots=True)
class Counters:
    """Since the start, in tokens where not said otherwise: vLLM counts prefix hits in tokens, at scheduling."""

    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0  # sequences


class Engine(Protocol):
    cache: PrefixCache
    counters: Counters
    slowdown: float  # all times are multiplied by it; a fault that tests switch on

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next. None: nothing, until `submit`."""
        ...

    def submit(self, sequence: Sequence, now_s: float) -> None: ...

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End it early and give its memory back. Harmless when it has ended."""
        ...

    def advance(self, now_s: float) -> Iterable[Sequence]:
        """Let time pass up to `now_s`. The sequences that got a token, or ended."""
        ...
