"""Which replicas have served which prompt: how a conversation without an id is recognised.

For placement only: nothing else is shared by it. Several conversations may have the same prompt (a greeting), and are
told apart as soon as they differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from homing.core.history import History

MAX_REPLICAS = 8
"""Replicas remembered for one prompt. More say no more: it is a common one."""


class Recognition(StrEnum):
    """What came of a look-up: the values of homing_keyless_total's label `outcome`."""

    FOUND = "found"  # an earlier turn was served by one replica
    AMBIGUOUS = "ambiguous"  # by several: conversations that had not differed yet
    FIRST = "first"  # no earlier turn in the request
    UNKNOWN = "unknown"  # earlier turns, none of them known here
    SYSTEM_CHANGES = "system_changes"  # known but for the system text: a time or a nonce in it
    TRIMMED = "trimmed"  # the last turn is known, what came before it is not: the client cuts old turns off


class Chains:
    """Prompt digest -> replicas. Bounded like the table of homes: the longest unused leaves first, idle time slides.

    Times are seconds of any monotonic clock, passed in.
    """

    __slots__ = ("_entries", "_max", "_ttl_s")

    def __init__(self, ttl_s: float, max_prompts: int) -> None:
        self.limit(ttl_s, max_prompts)
        self._entries: dict[bytes, tuple[tuple[str, ...], float]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def limit(self, ttl_s: float, max_prompts: int) -> None:
        self._ttl_s = ttl_s
        self._max = max_prompts

    def look_up(self, history: History, now: float) -> tuple[Recognition, tuple[str, ...]]:
        """The replicas that served the longest known earlier prompt; none unless FOUND or AMBIGUOUS."""
        if not history.earlier:
            return Recognition.FIRST, ()
        for digest in history.earlier:
            if replicas := self._get(digest, now):
                return (Recognition.FOUND if len(replicas) == 1 else Recognition.AMBIGUOUS), replicas
        if self._any(history.unsaid_earlier, now):
            return Recognition.SYSTEM_CHANGES, ()
        if self._any(history.earlier_tails[:1], now):
            return Recognition.TRIMMED, ()
        return Recognition.UNKNOWN, ()

    def put(self, history: History, replica_id: str, now: float) -> None:
        """`replica_id` is about to serve this prompt."""
        before = self._get(history.prompt, now)
        self._put(history.prompt, (replica_id, *(r for r in before if r != replica_id))[:MAX_REPLICAS], now)
        self._put(history.unsaid, (replica_id,), now)
        if history.tail is not None:
            self._put(history.tail, (replica_id,), now)

    def _get(self, digest: bytes, now: float) -> tuple[str, ...]:
        entry = self._entries.get(digest)
        return entry[0] if entry is not None and now - entry[1] < self._ttl_s else ()

    def _any(self, digests: Iterable[bytes], now: float) -> bool:
        return any(self._get(digest, now) for digest in digests)

    def _put(self, digest: bytes, replicas: tuple[str, ...], now: float) -> None:
        entries = self._entries
        entries.pop(digest, None)
        entries[digest] = (replicas, now)
        for _ in range(2):  # a few at a time, so that no single request pays for many
            first = next(iter(entries))
            if len(entries) <= self._max and now - entries[first][1] < self._ttl_s:
                return
            del entries[first]
