"""The file: read at the start, and again when it changes or when asked. A bad file changes nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from homing.core.config import MAX_FILE_BYTES, Config, ConfigError, Problem, parse

log = logging.getLogger(__name__)

POLL_S = 1.0
MAX_LOGGED_PROBLEMS = 5

Signature = tuple[int, int, int]
"""(mtime in ns, inode, size): differs after every write, and after every rename over the file."""


def load(path: Path) -> Config:
    """Raises ConfigError, also for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)  # one more than allowed: enough to see that it is too long
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e)
        problem = Problem(str(path), None, "", reason.lower(), "a file that can be read (-c FILE)")
        raise ConfigError([problem]) from None
    return parse(data, str(path))


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the newest file is not used, on one line, and when it was read first, in seconds since 1970."""

    why: str
    at_s: float


class Reloader:
    """Follows the file and hands over each good one that differs from the last."""

    def __init__(
        self,
        path: Path,
        config: Config,
        apply: Callable[[Config], None],
        poll_s: float = POLL_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`now_s`: the time of day."""
        self.refused: Refused | None = None
        """None while the newest file is the one that is used."""
        self.applied = 0
        self.rejected = 0
        self.config = config
        """The newest good one."""
        self._path = path
        self._apply = apply
        self._poll_s = poll_s
        self._now_s = now_s
        self._asked = asyncio.Event()
        self._read: Signature | None = None  # the file may have changed since `config` was read from it

    def ask(self) -> None:
        """Reads the file again, changed or not (SIGHUP)."""
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            asked = await self._pause()
            now = signature(self._path)
            if asked or now != self._read:
                self._read = now
                await self._reload()

    async def _pause(self) -> bool:
        try:
            async with asyncio.timeout(self._poll_s):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _reload(self) -> None:
        try:
            config = await asyncio.to_thread(load, self._path)
        except ConfigError as e:
            self.rejected += 1
            self.refused = Refused(_one_line(e), self._now_s())
            log.error("the file is refused, the last good one stays: %s", self.refused.why)
            return
        if self.refused is not None and config == self.config:
            log.info("%s: good again, and as it was", self._path)
        self.refused = None
        if config != self.config:
            self.config = config
            self.applied += 1
            log.info("%s: changed, and applied", self._path)
            self._apply(config)


def _one_line(error: ConfigError) -> str:
    shown = "; ".join(map(str, error.problems[:MAX_LOGGED_PROBLEMS]))
    more = len(error.problems) - MAX_LOGGED_PROBLEMS
    return f"{shown}; and {more} more" if more > 0 else shown


def signature(path: Path) -> Signature | None:
    """None where there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
