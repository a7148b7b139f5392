"""Many server-sent event streams at once through the product: none lost, none without the picker, little memory."""

from __future__ import annotations

import resource

import msgspec

MAX_STREAMS = 10_000
SPARE = 200


class Streams(msgspec.Struct, frozen=True):
    asked: int
    wrong: dict[str, int]
    fail_opens: int
    picker_mb: float
    p99_head_ms: float

    def said(self) -> str:
        lost = sum(self.wrong.values())
        return f"{lost} lost, {self.fail_opens} without the picker, picker at most {self.picker_mb:.0f} MB"


def possible(wanted: int = MAX_STREAMS) -> int:
    """Envoy holds two sockets for each; a process may not have more files open than its limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted, (hard - SPARE) // 2)
