"""How flat the optimum is: one constant at a time, times some factors, over some workloads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.placement.product import Homing
from bench.placement.world import Workload, World
from homing.core.placement.settings import Settings

FACTORS = (0.0, 0.25, 0.5, 2.0, 4.0)
CONSTANTS = (
    "leave_tokens", "leave_factor", "roomy_leave_factor", "crowd_factor", "delay_factor", "eviction_factor",
    "spread_factor", "in_flight_tokens", "context_factor", "further_turns", "hash_preference_tokens",
)  # fmt: skip


def score(settings: Settings, workloads: Sequence[Workload], placers: int) -> list[float]:
    """Per workload, seconds: the geometric mean of TTFT's p90 and p99. Less is better."""
    results = [World(workload, Homing(placers, settings=settings)).run() for workload in workloads]
    return [math.sqrt(r.p90 * r.p99) for r in results]


def search(
    workloads: Sequence[Workload], constants: Sequence[str] = CONSTANTS, placers: int = 1
) -> Iterator[tuple[str, float, list[float]]]:
    """(constant, value, for each workload how many times the score of the defaults)."""
    defaults = Settings()
    base = score(defaults, workloads, placers)
    for name in constants:
        for factor in FACTORS:
            value = getattr(defaults, name) * factor
            scores = score(replace(defaults, **{name: value}), workloads, placers)
            yield name, value, [s / b for s, b in zip(scores, base, strict=True)]
