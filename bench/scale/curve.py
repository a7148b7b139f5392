"""A figure at several sizes, how it grows, and how far it may."""

from __future__ import annotations

from math import log
from statistics import linear_regression

import msgspec


class Curve(msgspec.Struct, frozen=True):
    """`points`: (size, figure). `by`: what is counted by the sizes. `bound`: what the figure may be, in its unit, None
    where nothing stands in the way; `because`: why so much."""

    part: str
    what: str
    unit: str
    by: str
    points: tuple[tuple[int, float], ...]
    bound: float | None = None
    because: str = ""

    @property
    def exponent(self) -> float:
        """b of figure = a * size**b, by least squares of the logarithms: 0 is flat, 1 grows as the size does. NaN for
        fewer than two points above zero."""
        logs = [(log(size), log(figure)) for size, figure in self.points if figure > 0]
        if len(logs) < 2:
            return float("nan")
        sizes, figures = zip(*logs, strict=True)
        return linear_regression(sizes, figures).slope

    @property
    def fits_to(self) -> float:
        """The size at which the bound is reached, between the two points where that happens by a line of the
        logarithms; infinite where it is not reached, 0 where the smallest size is beyond it."""
        if self.bound is None:
            return float("inf")
        before: tuple[int, float] | None = None
        for size, figure in self.points:
            if figure > self.bound:
                if before is None:
                    return 0.0
                share = log(self.bound / before[1]) / log(figure / before[1])
                smaller: float = before[0]
                return float(smaller * (size / smaller) ** share)
            before = (size, figure)
        return float("inf")
