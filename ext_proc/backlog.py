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
    """Lines of Envoy's access log, in order."""

    __slots__ = ("_due", "_finished", "_lines")

    def __init__(self, finished: Callable[[Outcome], None]) -> None:
        self._finished = finished
        self._lines: deque[str] = deque()
        self._due = False

    def take(self, data: bytes) -> None:
        """One message. One that cannot be read is logged, and costs nothing else."""
        try:
            self._lines += codec.outcome_lines(data)
        except codec.MalformedMessageError as error:
            log.warning("an access log message that cannot be read: %s", error)
            return
        if not self._due:
            self._tell_some()

    def tell_all(self) -> None:
        while self._lines:
            self._tell()

    def _tell_some(self) -> None:
        waiting = len(self._lines)
        for _ in range(min(waiting, max(AT_ONCE, int(waiting * SHARE)))):
            self._tell()
        self._due = bool(self._lines)
        if self._due:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _tell(self) -> None:
        try:
            outcome = Outcome.of_line(self._lines.popleft())
        except ValueError as error:
            log.warning("a line of the access log that cannot be read: %s", error)
            return
        self._finished(outcome)
