"""Requests whose first token may still be heard of, and where each ends in the queue of its replica.

Envoy's access log brings all outcomes to one picker. Those of requests that a sibling sent on their way are told to the
siblings: only who sent it knows when that was, and what came before it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Annotated, Protocol

import msgspec

from homing.core.journal import Digest

MOST = 16_384
"""Older ones correct no queue any more."""

MAX_NEWS = 200
"""First tokens that wait for one listener, and in one message: some 6 KB. Beyond, the oldest are not told: the next
says more of the queue."""


class FirstToken(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """It came after `ttft_s`. `digest` and `expected` (tokens) as in the Ref of the request."""

    digest: Digest
    expected: int
    ttft_s: Annotated[float, msgspec.Meta(ge=0)]


class FirstTokens:
    """Those of which one listener is still to be told. What does not reach it is not told again: they age fast."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[FirstToken] = deque(maxlen=MAX_NEWS)

    def __len__(self) -> int:
        return len(self._pending)

    def note(self, first: FirstToken) -> None:
        self._pending.append(first)

    def take(self) -> list[FirstToken]:
        """All; they are not pending any more."""
        taken = list(self._pending)
        self._pending.clear()
        return taken


class Queued(Protocol):
    """Where it waited."""

    def first_token(self, mark: float, at: float, now: float) -> None: ...


class Underway:
    """This picker's."""

    __slots__ = ("_listeners", "_requests")

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[bytes, int], tuple[Queued, float, float]] = OrderedDict()
        self._listeners: list[FirstTokens] = []

    def news(self) -> FirstTokens:
        """For one listener: from now on it gets a note of every first token of a request that is not ours."""
        news = FirstTokens()
        self._listeners.append(news)
        return news

    def add(self, digest: bytes, expected: int, queued: Queued, mark: float, now: float) -> None:
        """One that is on its way since `now`, and ends at `mark` in its queue."""
        self._requests[digest, expected] = (queued, mark, now)
        if len(self._requests) > MOST:
            del self._requests[next(iter(self._requests))]

    def first_token(self, digest: bytes, expected: int, ttft_s: float, now: float) -> None:
        """The access log says so."""
        if not self._came(digest, expected, ttft_s, now):
            for listener in self._listeners:
                listener.note(FirstToken(digest, expected, ttft_s))

    def absorb(self, firsts: Iterable[FirstToken], now: float) -> None:
        """A sibling says so, of what it did not send."""
        for first in firsts:
            self._came(first.digest, first.expected, first.ttft_s, now)

    def _came(self, digest: bytes, expected: int, ttft_s: float, now: float) -> bool:
        """Whether it is one of ours."""
        request = self._requests.pop((digest, expected), None)
        if request is None:
            return False
        queued, mark, begun = request
        queued.first_token(mark, begun + ttft_s, now)
        return True
