"""What became of requests: Envoy tells it in batches of hundreds. The picker hears some at a time, and serves requests
in between: a whole batch takes as long as many answers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from homing.ext_proc import codec
from homing.ext_proc.outcomes import Outcome

AT_ONCE = 8
SHARE = 1 / 32
"""Of those that wait, where that is more: so that no rate of requests makes the backlog grow."""

log = logging.getLogger(__name__)


class Backlog:
    """Batches of Envoy's access log, and the lines of those that have been read, in order."""

    __slots__ = ("_batches", "_due", "_finished", "_lines")

    def __init__(self, finished: Callable[[Outcome], None]) -> None:
        self._finished = finished
        self._batches: deque[bytes] = deque()
        self._lines: deque[str] = deque()
        self._due = False

    def take(self, data: bytes) -> None:
        """One message. One that cannot be read is logged, and costs nothing else."""
        self._batches.append(data)
        self._again()

    def tell_all(self) -> None:
        while self._batches:
            self._read()
        while self._lines:
            self._tell()

    def _turn(self) -> None:
        """To read a batch takes as long as to tell some: each has a turn of the loop's to itself."""
        self._due = False
        if self._batches:
            self._read()
        else:
            waiting = len(self._lines)
            for _ in range(min(waiting, max(AT_ONCE, int(waiting * SHARE)))):
                self._tell()
        if self._batches or self._lines:
            self._again()

    def _again(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _read(self) -> None:
        try:
            self._lines += codec.outcome_lines(self._batches.popleft())
        except codec.MalformedMessageError as error:
            log.warning("an access log message that cannot be read: %s", error)

    def _tell(self) -> None:
        try:
            outcome = Outcome.of_line(self._lines.popleft())
        except ValueError as error:
            log.warning("a line of the access log that cannot be read: %s", error)
            return
        self._finished(outcome)
