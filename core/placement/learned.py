"""What a pool's traffic is like: learned from it, with what the file assumes to begin with."""

from __future__ import annotations

from homing.core.placement.settings import Settings

SESSIONS_WORTH = 10.0
"""Sessions that the assumption on further turns is worth."""

SESSIONS_COUNTED = 2000.0
"""Beyond, what was counted is halved: traffic changes."""

MOST_TURNS = 20.0
ASSUMED_PROMPT = 1000.0
TURNS_WORTH = 20.0
"""Later turns that the assumption on what they have to prefill is worth."""

WEIGHT = 0.01
"""Of one request, in a running mean."""

FIRST_WEIGHT = 0.03
"""Of one session's first prompt."""

TOKENS_TOLD = 200_000
"""So many tokens the engines' counters must tell of, for a ratio to be worth anything; ten times as many are kept in
mind. An engine counts a prompt when it is scheduled, we when it is sent."""


class Learned:
    """One pool's. Tokens."""

    __slots__ = (
        "_begun", "_begun_tokens", "_bytes", "_bytes_per_token", "_continued", "_continued_tokens", "_settings",
        "_tokens", "found_at_first", "prefill_tokens_per_s", "work",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.prefill_tokens_per_s = settings.prefill_tokens_per_s  # of a unit of weight, the mean of the pool
        self.found_at_first = 0.0  # the share of a first prompt that is cached anyway: somebody's began alike
        self.work = ASSUMED_PROMPT  # what a request has to prefill
        self._begun = self._continued = 0.0  # sessions, later turns
        self._begun_tokens = self._continued_tokens = 0.0  # that they had to prefill
        self._bytes = self._tokens = 0.0
        self._bytes_per_token: float | None = None
        self._settings = settings

    def configure(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def further_turns(self) -> float:
        """Turns that a session has after its first, on the mean."""
        assumed = self._settings.further_turns
        turns = (self._continued + assumed * SESSIONS_WORTH) / (self._begun + SESSIONS_WORTH)
        return min(turns, MOST_TURNS)

    @property
    def uncached(self) -> float:
        """What a later turn has to prefill. To begin with, a quarter of a first prompt."""
        first = (self._begun_tokens + ASSUMED_PROMPT) / (self._begun + 1.0)
        return (self._continued_tokens + min(first / 4, ASSUMED_PROMPT) * TURNS_WORTH) / (self._continued + TURNS_WORTH)

    @property
    def bytes_per_token(self) -> float:
        return self._bytes_per_token or self._settings.bytes_per_token

    def begun(self, uncached: float) -> None:
        """A session's first request."""
        self.work += WEIGHT * (uncached - self.work)
        self._begun += 1
        self._begun_tokens += uncached
        if self._begun > SESSIONS_COUNTED:
            self._begun, self._begun_tokens = self._begun / 2, self._begun_tokens / 2
            self._continued, self._continued_tokens = self._continued / 2, self._continued_tokens / 2

    def continued(self, uncached: float) -> None:
        """A later one."""
        self.work += WEIGHT * (uncached - self.work)
        self._continued += 1
        self._continued_tokens += uncached

    def first_prompt(self, tokens: float, ttft_s: float) -> None:
        """A session's first prompt took `ttft_s` where nothing waited: what that is too short for was in the cache."""
        found = 1.0 - self.prefill_tokens_per_s * ttft_s / tokens if tokens > 0 else 0.0
        self.found_at_first += FIRST_WEIGHT * (min(max(found, 0.0), 1.0) - self.found_at_first)

    def counted(self, tokens: float, size_bytes: float) -> None:
        """An engine says that so many prompt tokens have come since it was asked before; bodies of `size_bytes` were
        sent there meanwhile."""
        if tokens <= 0 or size_bytes <= 0:
            return
        self._tokens += tokens
        self._bytes += size_bytes
        if self._tokens >= TOKENS_TOLD and self._bytes > 0:
            self._bytes_per_token = min(max(self._bytes / self._tokens, 0.5), 64.0)
        if self._tokens >= 10 * TOKENS_TOLD:
            self._bytes, self._tokens = self._bytes / 2, self._tokens / 2
