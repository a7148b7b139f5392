"""How far a measured ratio can be trusted: a bootstrap over conversations.

The turns of one conversation are not independent of one another (same prompt, same replica), so whole conversations are
drawn with replacement, each with what both runs saw of it (Efron and Tibshirani 1993, chapters 8 and 13: percentiles).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

RESAMPLES = 1000
COVERED = 0.95
LEAST_CONVERSATIONS = 5
"""Of fewer, no interval says anything."""

Pair = tuple[Sequence[float], Sequence[float]]
"""What the scattered run and the one with affinity measured of one conversation."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of the means, affinity to scattered; `low` to `high` holds 95% of the resamples. `scattered` and `affinity`: the
    means themselves. `conversations`: how many it was measured on.

    Of the means, since among few replicas many a scattered turn comes home by chance: half of them among two, where
    the median is of one kind or of the other."""

    scattered: float
    affinity: float
    low: float
    high: float
    conversations: int

    @property
    def value(self) -> float:
        return self.affinity / self.scattered if self.scattered else 1.0

    @property
    def certain(self) -> bool:
        """Whether the interval means anything."""
        return self.conversations >= LEAST_CONVERSATIONS

    @property
    def falls(self) -> bool:
        return self.certain and self.high < 1.0

    @property
    def rises(self) -> bool:
        return self.certain and self.low > 1.0


def ratio(pairs: Sequence[Pair], seed: int = 0) -> Ratio | None:
    """None where either run has measured nothing. Pairs without a value in both are left out."""
    pairs = [pair for pair in pairs if pair[0] and pair[1]]
    if not pairs:
        return None
    scattered, affinity = _means(pairs)
    drawn = sorted(_value(*_means(_resample(pairs, seed, number))) for number in range(RESAMPLES))
    outside = round(RESAMPLES * (1 - COVERED) / 2)
    return Ratio(scattered, affinity, drawn[outside], drawn[-1 - outside], len(pairs))


def mean(values: Sequence[float]) -> float:
    """`values` must not be empty."""
    return sum(values) / len(values)


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float:
    """Between neighbours by their distance. `values` must not be empty."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def _means(pairs: Sequence[Pair]) -> tuple[float, float]:
    return (
        mean([value for scattered, _ in pairs for value in scattered]),
        mean([value for _, affinity in pairs for value in affinity]),
    )


def _value(scattered: float, affinity: float) -> float:
    return affinity / scattered if scattered else 1.0


def _resample(pairs: Sequence[Pair], seed: int, number: int) -> Sequence[Pair]:
    draw = xxhash.xxh64_intdigest
    return [pairs[draw(b"%d/%d" % (number, i), seed) % len(pairs)] for i in range(len(pairs))]
