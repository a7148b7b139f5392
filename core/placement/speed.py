"""How fast a replica prefills, learned from how long first tokens took."""

from __future__ import annotations

FORGETTING = 0.99
"""The weight that what was known keeps with every observation: about the last 100 count."""

PRIOR_S = 2.0
"""Seconds of prefill that the assumption is worth before any observation; less with each."""

MOST_FASTER = 1.5
"""One observation counts for no more than that, against what is known: what looks faster may have been cached."""

TOKENS_WORTH = 256.0
"""Fewer tokens say nothing: their time is that of the engine's step and of the network."""


class Speed:
    """A ratio of sums, so that a long prefill says more than a short one. What siblings learned counts alike."""

    __slots__ = ("_observed", "_others_seconds", "_others_tokens", "_seconds", "_tokens")

    def __init__(self) -> None:
        self._observed = 0
        self._tokens = self._seconds = 0.0
        self._others_tokens = self._others_seconds = 0.0

    @property
    def own(self) -> tuple[float, float]:
        """Tokens, and the seconds that they took."""
        return self._tokens, self._seconds

    def observe(self, tokens: float, seconds: float, *, at_most: bool, assumed: float) -> None:
        """`tokens` had to be prefilled, those that waited before included, until the first token came. `at_most`: or
        fewer, since some of them may have been in the cache. Then the speed was that or less, and this teaches only
        where more was assumed."""
        if tokens < TOKENS_WORTH or seconds <= 0:
            return
        likely = self.learned(assumed) * seconds
        tokens = min(tokens, MOST_FASTER * likely)
        if not at_most or tokens < likely:
            self._observed += 1
            self._tokens = self._tokens * FORGETTING + tokens
            self._seconds = self._seconds * FORGETTING + seconds

    def hear(self, tokens: float, seconds: float) -> None:
        """By so much a sibling's sums have changed."""
        self._others_tokens = max(0.0, self._others_tokens + tokens)
        self._others_seconds = max(0.0, self._others_seconds + seconds)

    def learned(self, assumed: float) -> float:
        """Tokens per second, beginning at `assumed`."""
        prior_s = PRIOR_S / (1 + self._observed)
        tokens = self._tokens + self._others_tokens + assumed * prior_s
        return tokens / (self._seconds + self._others_seconds + prior_s)
