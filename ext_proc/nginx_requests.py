"""NGINX's requests between their question and their line in the log.

A line that gets lost leaves a slot taken. It is given back soon after the same connection asks again (HTTP/1.x has one
request at a time), and after OPEN_S at the latest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from homing.ext_proc.events import SetHeaders
from homing.ext_proc.exchange import Exchange

MAX_OPEN = 100_000
OPEN_S = 600.0
"""An answer that takes longer loses no more than its place in the count."""
LATE_S = 2.0
"""A line may be read after the next question of its connection, but not much after."""
MAX_ENDED = 1_000
"""Ids of requests that ended before they were asked about: a client that left at once, whose line was quicker."""


@dataclass(slots=True)
class OpenRequest:
    """`told`: what the picker has said of it so far."""

    exchange: Exchange
    connection: str
    since: float
    told: SetHeaders = ()


class OpenRequests:
    """By NGINX's id of the request, the oldest first. `clock` in seconds."""

    def __init__(self, open_exchange: Callable[[], Exchange], clock: Callable[[], float]) -> None:
        self._open_exchange = open_exchange
        self._clock = clock
        self._open: OrderedDict[str, OpenRequest] = OrderedDict()
        self._of_connection: dict[str, str] = {}
        self._followed: OrderedDict[str, float] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.forgotten = 0
        """Requests whose lines did not come."""

    def __len__(self) -> int:
        return len(self._open)

    def get(self, request_id: str, connection: str = "") -> OpenRequest:
        """That request; new the first time. `connection`: the client's, empty where it carries several at once."""
        known = self._open.get(request_id)
        if known is not None:
            return known
        self._forget(connection, self._clock())
        new = OpenRequest(self._open_exchange(), connection, self._clock())
        if request_id not in self._ended:
            self._open[request_id] = new
            if connection:
                self._of_connection[connection] = request_id
        return new

    def over(self, request_id: str) -> bool:
        """Whether nobody will say that it has ended: it had, before it was asked about."""
        return request_id not in self._open

    def close(self, request_id: str) -> bool:
        """The request has ended. Whether it was ours."""
        known = self._open.pop(request_id, None)
        if known is None:
            self._ended[request_id] = None
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
            return False
        self._followed.pop(request_id, None)
        if self._of_connection.get(known.connection) == request_id:
            del self._of_connection[known.connection]
        known.exchange.close()
        return True

    def _forget(self, connection: str, now: float) -> None:
        """Those that must have ended."""
        before = self._of_connection.pop(connection, None)
        if before is not None:
            self._followed[before] = now
        while self._followed:
            first = next(iter(self._followed))
            if now - self._followed[first] < LATE_S:
                break
            self._lose(first)
        while self._open:
            first = next(iter(self._open))
            if len(self._open) < MAX_OPEN and now - self._open[first].since < OPEN_S:
                break
            self._lose(first)

    def _lose(self, request_id: str) -> None:
        self.forgotten += 1
        self.close(request_id)
