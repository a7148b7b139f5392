"""When a child is started again: the decision, without processes, clock or chance of its own.

Rules
- A child that ends is started again after `first_s`, then twice as long each time, up to `most_s`.
- One that lived for `steady_s` begins again at `first_s`: its last trouble is over.
- Up to a fifth of each wait is taken off at random, so that children that died together do not start together.
- One that says "wrong usage or configuration" (exit status 2) before anything was ready will say it again:
  the start has failed. Later on the file may be mended at any moment, so it is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

WRONG_CONFIGURATION = 2
JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    first_s: float = 0.2
    most_s: float = 5.0
    steady_s: float = 30.0

    def delay_s(self, failures: int, chance: float) -> float:
        """Wait before the start that follows the `failures`-th end in a row (from 1); `chance` in [0, 1)."""
        doublings = min(failures - 1, 32)  # far past `most_s`; bounds the power
        return float(min(self.most_s, self.first_s * 2**doublings) * (1 - JITTER * chance))


@dataclass(frozen=True, slots=True)
class Exited:
    """A child ended. `status` as in `subprocess`: negative for a signal."""

    status: int

    def __str__(self) -> str:
        return f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A child could not be started at all."""

    reason: str

    def __str__(self) -> str:
        return self.reason


End = Exited | NotStarted


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of a child from one start to the next. `failures` counts ends in a row."""

    failures: int = 0
    started_s: float = 0.0

    def started(self, now_s: float) -> History:
        return replace(self, started_s=now_s)


@dataclass(frozen=True, slots=True)
class Restart:
    delay_s: float
    history: History


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The start of the whole has failed; `reason` completes "NAME ended (...)"."""

    reason: str


def decide(
    backoff: Backoff, history: History, end: End, *, now_s: float, starting: bool, chance: float
) -> Restart | GiveUp:
    """What follows the end of a child. `starting`: the whole was never ready yet."""
    if starting and end == Exited(WRONG_CONFIGURATION):
        return GiveUp("wrong usage or configuration")
    steady = isinstance(end, Exited) and now_s - history.started_s >= backoff.steady_s
    failures = 1 if steady else history.failures + 1
    return Restart(backoff.delay_s(failures, chance), replace(history, failures=failures))
