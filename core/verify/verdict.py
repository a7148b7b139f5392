"""What the comparison says, in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from homing.core.verify.comparison import Comparison
from homing.core.verify.plan import Run
from homing.core.verify.spread import LEAST_CONVERSATIONS, Ratio

CLEAR = 0.05
"""Hit rates differ where there is so much between them."""

EQUAL = 0.1
"""Times that differ by less are called equal, noise or not, but for what the verdict is about: later turns."""


class Effect(StrEnum):
    SEEN = "seen"  # later turns are sooner
    HITS_ONLY = "hits only"  # the caches are hit more often, and the times do not show it
    MISSING = "missing"
    WORSE = "worse"  # with affinity later turns are later, or caches are hit less
    UNKNOWN = "unknown"  # too little was answered


@dataclass(frozen=True, slots=True)
class Verdict:
    """`headline` and `details` are sentences."""

    effect: Effect
    headline: str
    details: tuple[str, ...]

    @property
    def good(self) -> bool:
        return self.effect in (Effect.SEEN, Effect.HITS_ONLY)


def judge(comparison: Comparison) -> Verdict:
    if comparison.first is None or comparison.later is None:
        return Verdict(Effect.UNKNOWN, "Nothing can be said: too few turns were answered in both runs.", ())
    first, later = comparison.first, comparison.later
    effect = _effect(comparison, later)
    details = (_first(first), _later(later), _rates(comparison), _between(comparison.itl), _few(later))
    return Verdict(effect, _HEADLINES[effect], tuple(filter(None, details)))


_HEADLINES = {
    Effect.UNKNOWN: "Nothing can be said: too few conversations, and no hit rates.",
    Effect.SEEN: "Affinity works: later turns are answered sooner.",
    Effect.HITS_ONLY: "Affinity works: caches are hit more often. The times do not show it.",
    Effect.MISSING: "The effect is missing: with affinity, turns fare as they do without.",
    Effect.WORSE: "With affinity it is worse than without.",
}


def _effect(comparison: Comparison, later: Ratio) -> Effect:
    more = gained(comparison)
    if more is None and not later.certain:
        return Effect.UNKNOWN
    if later.falls and (more is None or more > -CLEAR):
        return Effect.SEEN if more is None or more >= CLEAR else Effect.MISSING
    if more is not None and more >= CLEAR and not later.rises:
        return Effect.HITS_ONLY
    if later.rises or (more is not None and more <= -CLEAR):
        return Effect.WORSE
    return Effect.MISSING


def gained(comparison: Comparison) -> float | None:
    """By how much the hit rate with affinity is above that without; None where it is not known. Engines that look
    nothing up find nothing."""
    if not comparison.source:
        return None
    scattered, affinity = (comparison.hits[run].rate or 0.0 for run in Run)
    return affinity - scattered


def _first(first: Ratio) -> str:
    how = _milliseconds(first)
    if not first.certain:
        return f"The first turn: {how}."
    if abs(first.value - 1) < EQUAL:
        return f"The first turn is equal, as it should be: {how}."
    if first.falls or first.rises:
        return (
            f"The first turn differs, though nothing is cached by then: {how}. Something else changed between the runs."
        )
    return f"The first turn is equal, as it should be, but for noise: {how}."


def _later(later: Ratio) -> str:
    how = _milliseconds(later)
    if not later.certain:
        return f"Later turns: {how}."
    if later.falls:
        return f"Later turns fall to {later.value:.0%}: {how}."
    if later.rises:
        return f"Later turns rise to {later.value:.0%}: {how}."
    return f"Later turns differ by no more than the noise: {how}."


def _rates(comparison: Comparison) -> str:
    if not comparison.source:
        return "Hit rates are not known: neither engines nor answers tell them."
    scattered, affinity = (comparison.hits[run].rate for run in Run)
    if scattered is None or affinity is None:
        return "The engines looked nothing up in their prefix caches."
    return f"Hit rate {affinity:.0%} with affinity against {scattered:.0%} by round robin, by {comparison.source}."


def _between(itl: Ratio | None) -> str:
    if itl is None:
        return ""
    clear = abs(itl.value - 1) >= EQUAL
    change = "falls" if clear and itl.falls else "rises" if clear and itl.rises else "stays as it is"
    return f"The time between tokens {change}: {_milliseconds(itl)}."


def _few(later: Ratio) -> str:
    if later.certain:
        return ""
    return (
        f"Measured on {later.conversations} conversations: of fewer than {LEAST_CONVERSATIONS} no spread can be told."
    )


def _milliseconds(ratio: Ratio) -> str:
    low, high = ratio.low, ratio.high
    spread = f", {ratio.value:.2f} times, between {low:.2f} and {high:.2f}" if ratio.certain else ""
    return (
        f"on average {ratio.scattered * 1000:.1f} ms by round robin, {ratio.affinity * 1000:.1f} with affinity{spread}"
    )
