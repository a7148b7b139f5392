"""The numbers of one engine's event batches: which batch is next, what is missing, when the engine began anew.

vLLM counts from 0 and begins again when it restarts. Batches are lost when nobody listens, and when a queue is full.
"""

from __future__ import annotations

from enum import Enum, auto


class Verdict(Enum):
    NEXT = auto()  # apply it
    KNOWN = auto()  # a replay brought it already
    HOLE = auto()  # batches before it are missing, from `wanted` on
    RESTARTED = auto()  # another life of the engine: everything it held is gone; ask again about this batch


class Stream:
    __slots__ = ("_heard", "wanted")

    def __init__(self) -> None:
        self.wanted = 0
        """The number of the next batch to be applied."""
        self._heard = -1

    def heard(self, number: int) -> Verdict:
        """A batch came. Numbers only rise within one life of the engine."""
        if number <= self._heard:
            self.wanted, self._heard = 0, -1
            return Verdict.RESTARTED
        if number > self.wanted:
            return Verdict.HOLE
        self._heard = number
        if number < self.wanted:
            return Verdict.KNOWN
        self.wanted += 1
        return Verdict.NEXT

    def replayed(self, number: int) -> Verdict:
        """A batch came that was asked for. A HOLE here stays: the engine has not kept what is missing."""
        if number < self.wanted:
            return Verdict.KNOWN
        if number > self.wanted:
            return Verdict.HOLE
        self.wanted += 1
        return Verdict.NEXT

    def skip_to(self, number: int) -> None:
        """What is missing before `number` will not come any more."""
        self.wanted = number
