"""Which sessions are active at a replica: how many, and how many tokens of context they have together.

No list of them: a session's last use and its size are known from the table of homes, so what it counted for is taken
out of the step of time where it was counted, and counted in the present one. What is not used again leaves with its
step. A few numbers for each replica, however many sessions there are.
"""

from __future__ import annotations

STEP_S = 10.0
STEPS = 9
"""A session counts as active for 80 to 90 seconds after its last use."""


class Activity:
    """Sessions and tokens at one replica."""

    __slots__ = ("_now", "_sessions", "_tokens", "sessions", "tokens")

    def __init__(self) -> None:
        self.sessions = 0
        self.tokens = 0.0
        self._sessions = [0] * STEPS
        self._tokens = [0.0] * STEPS
        self._now = 0  # the present step, counted from the clock's zero

    def used(self, tokens: float, now: float, before: tuple[float, float] | None = None) -> None:
        """A session with a context of `tokens` is used. `before`: when it was last, and its tokens then, here."""
        if int(now / STEP_S) != self._now:
            self.advance(now)
        if before is not None:
            self._take(*before)
        i = self._now % STEPS
        self._sessions[i] += 1
        self._tokens[i] += tokens
        self.sessions += 1
        self.tokens += tokens

    def left(self, before: tuple[float, float], now: float) -> None:
        """The session lives elsewhere now, or has ended."""
        self.advance(now)
        self._take(*before)

    def grown(self, tokens: float, before: float, now: float) -> None:
        """A session whose last use is not known, with `before` tokens then: taken out of the longest unused."""
        self.advance(now)
        for step in range(self._now + 1, self._now + STEPS + 1):
            if self._sessions[step % STEPS] and self._tokens[step % STEPS] >= before:
                self._remove(step % STEPS, before)
                break
        self.used(tokens, now)

    def advance(self, now: float) -> None:
        """Forgets what has been unused for too long."""
        step = int(now / STEP_S)
        if step == self._now:
            return
        for passed in range(max(self._now + 1, step - STEPS + 1), step + 1):
            i = passed % STEPS
            self.sessions -= self._sessions[i]
            self.tokens -= self._tokens[i]
            self._sessions[i], self._tokens[i] = 0, 0.0
        self._now = max(self._now, step)

    def _take(self, last_used: float, tokens: float) -> None:
        step = int(last_used / STEP_S)
        if self._now - STEPS < step <= self._now and self._sessions[step % STEPS]:
            self._remove(step % STEPS, tokens)

    def _remove(self, i: int, tokens: float) -> None:
        tokens = min(tokens, self._tokens[i])
        self._sessions[i] -= 1
        self._tokens[i] -= tokens
        self.sessions -= 1
        self.tokens -= tokens
