"""The sizes at which everything is looked at."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    replicas: tuple[int, ...] = (10, 30, 100, 300, 1_000)
    sessions: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    gateways: tuple[int, ...] = (1, 3, 10, 30, 100)
    repeats: int = 5
    """The best of so many tries is taken: what else the machine does only ever adds."""


FULL = Sizes()
SMOKE = Sizes(replicas=(10, 40), sessions=(1_000, 4_000), gateways=(1, 3), repeats=1)
