"""All that `homing up` writes, by one thread.

Whoever reads our output may stop reading (a paused terminal, a pipe that nobody empties). The supervisor must
then still restart children and answer signals, so it never writes itself: it queues, and what does not fit is
counted and dropped. Written to the descriptors, not to `sys.stdout`: at exit the interpreter would wait for the
lock of a stream that the thread is stuck in.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass

ERASE_LINE = "\r\x1b[K"
NAMES_MAX = 4  # in a progress line: one that wraps cannot be erased


@dataclass(frozen=True, slots=True)
class _Text:
    descriptor: int
    text: str


@dataclass(frozen=True, slots=True)
class _Status:
    text: str


class Console:
    """Writes to the descriptors `out` and `err`. `live`: `err` is a terminal, and gets a progress line that is
    overwritten in place."""

    def __init__(self, out: int, err: int, *, live: bool, lines_max: int = 10_000) -> None:
        self._out = out
        self._err = err
        self._live = live
        self._queue: queue.Queue[_Text | _Status | None] = queue.Queue(lines_max)
        self._dropped = 0
        self._status = ""
        self._writer = threading.Thread(target=self._write_all, name="console", daemon=True)
        self._writer.start()

    def show(self, text: str) -> None:
        """On stdout."""
        self._put(_Text(self._out, f"{text}\n"))

    def say(self, line: str) -> None:
        self._put(_Text(self._err, f"homing: {line}\n"))

    def child_line(self, name: str, line: str) -> None:
        self._put(_Text(self._err, f"{name} | {line}\n"))

    def progress(self, ready: int, of: int, waiting: Sequence[str]) -> None:
        if self._live:
            names = ", ".join(waiting[:NAMES_MAX]) or "the others"
            more = f" and {len(waiting) - NAMES_MAX} more" if len(waiting) > NAMES_MAX else ""
            self._put(_Status(f"starting: {ready} of {of} ready; waiting for {names}{more}"))

    def progress_done(self) -> None:
        if self._live:
            self._put(_Status(""))

    def close(self, timeout_s: float = 0.5) -> None:
        """Writes what is queued, unless nobody reads it for `timeout_s`."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
            self._writer.join(timeout_s)

    def _put(self, item: _Text | _Status) -> None:
        try:
            if self._dropped:
                self._queue.put_nowait(_Text(self._err, f"homing: {self._dropped} lines dropped: nobody read them\n"))
                self._dropped = 0
            self._queue.put_nowait(item)
        except queue.Full:
            self._dropped += 1

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            # A stream that is gone (closed pipe, terminal hung up) is no reason to end.
            with contextlib.suppress(OSError):
                self._write(item)

    def _write(self, item: _Text | _Status) -> None:
        erase = ERASE_LINE if self._status else ""
        if isinstance(item, _Status):
            self._status = item.text
            _write_whole(self._err, erase + self._status)
        elif item.descriptor == self._err:
            _write_whole(self._err, erase + item.text + self._status)
        else:
            _write_whole(self._err, erase)
            _write_whole(item.descriptor, item.text)
            _write_whole(self._err, self._status)


def _write_whole(descriptor: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]
