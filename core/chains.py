"""Which replicas have served which prompt: how a conversation without an id is recognised.

For placement only: nothing else is shared by it. Several conversations may have the same prompt (a greeting), and are
told apart as soon as they differ.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice

import msgspec

from homing.core.history import History
from homing.core.journal import Digest, ReplicaId

MAX_REPLICAS = 8
"""Replicas remembered for one prompt. More say no more: it is a common one."""


MAX_NEWS = 10_000
"""Prompts that wait for one listener. Beyond, the newest are not told: their conversations are known again a turn later
than they could be."""


class Served(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one picker says of one prompt."""

    prompt: Digest
    replica: ReplicaId


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Who served a prompt, the last of them first, and when. Nothing for the garbage collector to walk: there are
    several for every turn."""

    replicas: tuple[str, ...]
    used_s: float


class News:
    """Prompts of which one listener (a sibling, a store) is still to be told, each once."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def note(self, prompt: bytes, replica: str) -> None:
        if len(self._pending) < MAX_NEWS or prompt in self._pending:
            self._pending[prompt] = replica

    def take(self, at_most: int) -> list[Served]:
        """The first `at_most`; they are not pending any more."""
        taken = [Served(prompt, replica) for prompt, replica in islice(self._pending.items(), at_most)]
        for served in taken:
            del self._pending[served.prompt]
        return taken

    def again(self, unheard: Sequence[Served]) -> None:
        """They were not heard. What was noted meanwhile is newer."""
        for served in unheard:
            if served.prompt not in self._pending:
                self.note(served.prompt, served.replica)


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

    __slots__ = ("_entries", "_max", "_news", "_ttl_s")

    def __init__(self, ttl_s: float, max_prompts: int) -> None:
        self.limit(ttl_s, max_prompts)
        # not a dict: to find its first entry, that one passes by all that have left before
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._news: list[News] = []

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
        alone = Entry((replica_id,), now)
        self._serve(history.prompt, alone)
        for news in self._news:
            news.note(history.prompt, replica_id)
        self._put(history.unsaid, alone)
        if history.tail is not None:
            self._put(history.tail, alone)
        self._shrink(6, now)

    def news(self) -> News:
        """For one listener: from now on it gets a note of every prompt that is served here."""
        news = News()
        self._news.append(news)
        return news

    def prompts(self) -> list[bytes]:
        """All that is known, for somebody who begins."""
        return list(self._entries)

    def served(self, prompts: Iterable[bytes], now: float) -> list[Served]:
        """What is known of them, the replica that served a prompt last after the others."""
        return [Served(prompt, replica) for prompt in prompts for replica in reversed(self._get(prompt, now))]

    def absorb(self, served: Iterable[Served], now: float) -> None:
        """What another picker says. It is not told on: who says it says it to all."""
        for each in served:
            self._serve(each.prompt, Entry((each.replica,), now))
            self._shrink(2, now)

    def _serve(self, prompt: bytes, alone: Entry) -> None:
        """`alone`: who serves it now, as if nobody had before."""
        before = self._get(prompt, alone.used_s)
        if before and before != alone.replicas:
            last = alone.replicas[0]
            replicas = (last, *(r for r in before if r != last))[:MAX_REPLICAS]
            self._put(prompt, Entry(replicas, alone.used_s))
        else:
            self._put(prompt, alone)

    def _get(self, digest: bytes, now: float) -> tuple[str, ...]:
        entry = self._entries.get(digest)
        return entry.replicas if entry is not None and now - entry.used_s < self._ttl_s else ()

    def _any(self, digests: Iterable[bytes], now: float) -> bool:
        return any(self._get(digest, now) for digest in digests)

    def _put(self, digest: bytes, entry: Entry) -> None:
        self._entries[digest] = entry
        self._entries.move_to_end(digest)

    def _shrink(self, at_most: int, now: float) -> None:
        """A few at a time, twice as many as may have come, so that no single request pays for many."""
        entries = self._entries
        for _ in range(min(at_most, len(entries))):
            first = next(iter(entries))
            if len(entries) <= self._max and now - entries[first].used_s < self._ttl_s:
                return
            del entries[first]
