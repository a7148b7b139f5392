"""A replica's prefill queue as a fluid: tokens come in by requests and drain at the speed that was learned.

Why a fluid. A prompt stops to be pending at its first token, and no message tells the picker of that: the response is
not sent to it (that would cost a message for every request), and Envoy's access log speaks when the whole answer has
ended. Counted as pending until then, a replica that only decodes would look busy. So the queue is a model, and what
is heard later corrects it: the time of a first token says how much had been served by then, and the engine's own
number of waiting requests bounds it.
"""

from __future__ import annotations

from collections import deque

REMEMBERED = 128
"""Arrivals kept, to go on from a first token in the past. Older first tokens correct nothing."""

IN_PREFILL = 2
"""Requests that an engine prefills at once, at most, though none waits."""


class Queue:
    """Tokens that wait at one replica. Times in seconds of the picker's clock, speeds in tokens per second."""

    __slots__ = ("_arrivals", "_arrived", "_at", "_heard", "_mark", "_served")

    def __init__(self) -> None:
        self._arrived = 0.0  # all tokens ever added
        self._served = 0.0  # of those, the ones that have been prefilled by `_at`
        self._at = 0.0
        self._heard = 0.0  # the newest first token that was heard of
        self._mark: float | None = None  # its mark, until somebody asks what waits: most are followed by a newer one
        self._arrivals: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # when, and `_arrived` before it

    def waiting(self, now: float, speed: float) -> float:
        """Tokens that wait at `now`."""
        if self._mark is not None:
            self._correct(self._mark, now, speed)
        passed = now - self._at
        left = self._arrived - self._served
        if passed > 0.0:
            left -= speed * passed
        return left if left > 0.0 else 0.0

    def add(self, tokens: float, now: float, speed: float) -> float:
        """A prompt of which `tokens` are not cached. The mark that names its end in the queue."""
        return self.append(tokens, now, self.waiting(now, speed))

    def append(self, tokens: float, now: float, waiting: float) -> float:
        """The same for who has asked already what waits."""
        self._served = self._arrived - waiting
        self._at = now
        self._arrivals.append((now, self._arrived))
        self._arrived += tokens
        return self._arrived

    def first_token(self, mark: float, at: float) -> None:
        """What ends at `mark` had been served at `at`: everything since is counted anew from there."""
        if at > self._heard and self._arrivals and self._arrivals[0][0] <= at:
            self._heard, self._mark = at, mark

    def _correct(self, mark: float, now: float, speed: float) -> None:
        """No more can have been served by `now` than what the replica can do from the first token on, nor than from any
        arrival since, with all served that had come before it."""
        self._mark = None
        at = self._heard
        now = max(now, at)
        most = mark + speed * (now - at)
        for arrival, arrived in reversed(self._arrivals):
            if arrival <= at:
                break
            served = arrived + speed * (now - arrival)
            if served < most:
                most = served
        self._served = min(self._arrived, most)
        self._at = now

    def at_most(self, requests: int, now: float, speed: float) -> None:
        """The engine was asked: so many requests wait at `now`. With those that may be in prefill, that many of the
        largest that are not known to be served are all that can be pending."""
        served = self._arrived - self.waiting(now, speed)
        if not self._arrivals or self._arrivals[0][1] > served:  # more is pending than is remembered
            return
        begins = [before for _, before in self._arrivals]
        ends = [*begins[1:], self._arrived]
        pending = [end - max(begin, served) for begin, end in zip(begins, ends, strict=True) if end > served]
        most = sum(sorted(pending, reverse=True)[: requests + IN_PREFILL])
        if most < self._arrived - served:
            self._served, self._at = self._arrived - most, now
