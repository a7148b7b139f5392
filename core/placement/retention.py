"""How much of what a replica's cache should hold it does hold: learned from the engine's own count of hits.

What is expected to be cached is what a session sent to the replica before. Between its turns some of that is evicted;
how much depends on everything else there, and no working set tells it well: shared prefixes count once, and the
longest unused goes first. But the engine counts the tokens that were asked for and those that were found.
"""

from __future__ import annotations

FORGETTING = 0.9
"""With every word from the engine, once a second, while it has counted more than WORTH_TOKENS."""

WORTH_TOKENS = 200_000.0
"""Fewer say little: of a replica with a request every few seconds, ten seconds are a handful."""

PRIOR_TOKENS = 20_000.0
"""What the assumption that all is kept is worth."""


class Retention:
    """One replica's. The engine's rate counts everybody's requests, the expected one only this picker's: sessions are
    shared out to pickers by a hash, so one picker's are like all."""

    __slots__ = ("_expected", "_found", "_queried", "_sent", "kept")

    def __init__(self) -> None:
        self.kept = 1.0
        """The share of what is expected to be there."""
        self._expected = self._sent = 0.0  # this picker's
        self._found = self._queried = 0.0  # the engine's

    def sent(self, tokens: float, expected: float) -> None:
        """A prompt of `tokens`, of which `expected` are there if nothing was evicted."""
        self._sent += tokens
        self._expected += expected

    def told(self, queried: float, found: float) -> None:
        """So many tokens were looked up since it was asked before, and so many of them found."""
        self._queried += queried
        self._found += found
        if self._queried > 0 and self._sent > 0:
            expected = self._expected / self._sent * self._queried
            self.kept = min(1.0, (self._found + PRIOR_TOKENS) / (expected + PRIOR_TOKENS))
        if self._queried <= WORTH_TOKENS:
            return
        self._queried *= FORGETTING
        self._found *= FORGETTING
        self._sent *= FORGETTING
        self._expected *= FORGETTING
