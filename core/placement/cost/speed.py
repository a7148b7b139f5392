"""How much longer the same work takes there than at the mean of the pool; less than nothing at a fast one."""

from __future__ import annotations

from homing.core.placement.asked import There


def tokens(work: float, there: There) -> float:
    return work * (1.0 / there.speed - 1.0)
