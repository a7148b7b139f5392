"""A replica's prefill queue as a fluid: tokens come in by requests and drain at the speed that was learned.

Why a fluid. A prompt stops to be pending at its first token, and no message tells the picker of that: the response is
not sent to it (that would cost a message for every request), and Envoy's access log speaks when the whole answer has
ended. Counted as pending until then, a replica that only decodes would look busy. So the queue is a model, and what
is heard later corrects it: the time of a first token says how much had been served by then, and the engine's own
number of waiting requests bounds it.

All pickers' tokens are in it, for one engine serves them all: a queue of a picker's own alone would drain as if the
engine had nothing else to do.
"""

from __future__ import annotations

from collections import deque

REMEMBERED = 128
"""Arrivals kept, to go on from a first token in the past. Older first tokens correct nothing."""

IN_PREFILL = 2
"""Requests that an engine prefills at once, at most, though none waits."""


class Queue:
    """Tokens that wait at one replica. Times in seconds of the picker's clock, speeds in tokens per second."""

    __slots__ = ("_arrivals", "_arrived", "_at", "_heard", "_mark", "_served", "own")

    def __init__(self, own: float = 0.0) -> None:
        self.own = own  # tokens ever added for this picker's requests
        self._arrived = own  # all tokens ever added
        self._served = own  # of those, the ones that have been prefilled by `_at`
        self._at = 0.0
        self._heard = 0.0  # the newest first token that was heard of
        self._mark: float | None = None  # its mark, until somebody asks what waits: most are followed by a newer one
        self._arrivals: deque[tuple[float, float, float]] = deque(maxlen=REMEMBERED)
        """When each came, and `_arrived` and `own` before it."""

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
        self._arrivals.append((now, self._arrived, self.own))
        self._arrived += tokens
        self.own += tokens
        return self._arrived

    def add_others(self, tokens: float, now: float, speed: float) -> None:
        """Tokens of prompts that another picker has sent there."""
        own = self.own
        self.add(tokens, now, speed)
        self.own = own

    def own_waiting(self, now: float, speed: float) -> float:
        """Of what waits, the tokens of this picker's requests: first come, first served."""
        waiting = self.waiting(now, speed)
        if self.own == self._arrived or not waiting:
            return waiting
        served = self._arrived - waiting
        end, own_end, own = self._arrived, self.own, 0.0
        for _, begin, own_begin in reversed(self._arrivals):
            if begin < served:
                return own + (own_end - own_begin) * (end - served) / (end - begin)
            own += own_end - own_begin
            end, own_end = begin, own_begin
        return own + (end - served) * own_end / end if end > served else own

    def first_token(self, mark: float, at: float) -> float | None:
        """What ends at `mark` had been served at `at`: everything since is counted anew from there. Tokens that waited
        then; None where something newer is known, or nothing of so long ago."""
        if at <= self._heard or not self._arrivals or self._arrivals[0][0] > at:
            return None
        self._heard, self._mark = at, mark
        return self._come_by(at) - mark

    def waited(self, tokens: float, at: float) -> None:
        """Another picker has learned by a first token that so many waited at `at`."""
        self.first_token(self._come_by(at) - tokens, at)

    def _come_by(self, at: float) -> float:
        """All tokens that had been added by then."""
        come = self._arrived
        for arrival, before, _ in reversed(self._arrivals):
            if arrival <= at:
                break
            come = before
        return come

    def _correct(self, mark: float, now: float, speed: float) -> None:
        """No more can have been served by `now` than what the replica can do from the first token on, nor than from any
        arrival since, with all served that had come before it."""
        self._mark = None
        at = self._heard
        now = max(now, at)
        most = mark + speed * (now - at)
        for arrival, arrived, _ in reversed(self._arrivals):
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
        begins = [before for _, before, _ in self._arrivals]
        ends = [*begins[1:], self._arrived]
        pending = [end - max(begin, served) for begin, end in zip(begins, ends, strict=True) if end > served]
        most = sum(sorted(pending, reverse=True)[: requests + IN_PREFILL])
        if most < self._arrived - served:
            self._served, self._at = self._arrived - most, now
