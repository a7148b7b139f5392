"""The approximate index: what was sent to each replica of one pool, as far as its cache may still hold it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from homing.core.prefix.holders import Holders, Slots, lengths
from homing.core.prefix.prompt import Prompt

CAPACITY_TOKENS = 400_000
"""What a replica's cache is taken to hold until its engine says it."""

MAX_MARKS = 65_536
"""Marks kept for one replica, however short the prompts are: about 15 MB."""


class _Sent(msgspec.Struct, frozen=True, gc=False):
    """Of one mark: the tokens that it adds, and when it was sent."""

    adds: int
    at: float


@dataclass(slots=True)
class _Cache:
    """One replica. `marks` in the order of use; a prompt's last mark is older than its first, so that chains leave from
    their ends."""

    bit: int
    capacity: int = CAPACITY_TOKENS
    tokens: int = 0
    marks: OrderedDict[int, _Sent] = field(default_factory=OrderedDict)


class PlacedPrompts:
    """Bounded by each replica's capacity: the longest unused tokens leave first. Times are a monotonic clock's."""

    __slots__ = ("_caches", "_holders", "_slots")

    def __init__(self) -> None:
        self._slots = Slots()
        self._holders = Holders()
        self._caches: dict[str, _Cache] = {}

    def __len__(self) -> int:
        """Marks, each counted once for every replica that has it."""
        return sum(len(cache.marks) for cache in self._caches.values())

    def put(self, replica_id: str, prompt: Prompt, now: float) -> int:
        """How many of its marks were known there before, from the first on."""
        cache = self._cache(replica_id)
        before = len(prompt.marks)
        for i in range(len(prompt.marks) - 1, -1, -1):
            mark = prompt.marks[i]
            adds = prompt.tokens[i] - (prompt.tokens[i - 1] if i else 0)
            if (known := cache.marks.pop(mark, None)) is None:
                before = i
                self._holders.add(mark, cache.bit)
                cache.tokens += adds
            cache.marks[mark] = _Sent(known.adds if known else adds, now)
        self._bound(cache)
        return before

    def held(self, prompt: Prompt) -> Mapping[str, tuple[int, float]]:
        """Replica id -> (how many of the marks it has, when the last of them was sent there)."""
        found = {}
        for bits, count in lengths(self._holders, prompt.marks, len(prompt.marks)):
            for replica_id in self._slots.ids(bits):
                found[replica_id] = (count, self._caches[replica_id].marks[prompt.marks[count - 1]].at)
        return found

    def resize(self, replica_id: str, capacity_tokens: int) -> None:
        """What the engine says of its cache."""
        cache = self._cache(replica_id)
        cache.capacity = capacity_tokens
        self._bound(cache)

    def forget(self, replica_id: str) -> None:
        """The replica is cold, or gone."""
        cache = self._caches.pop(replica_id, None)
        if cache is not None:
            for mark in cache.marks:
                self._holders.remove(mark, cache.bit)
            self._slots.free(replica_id)

    def _cache(self, replica_id: str) -> _Cache:
        cache = self._caches.get(replica_id)
        if cache is None:
            cache = self._caches[replica_id] = _Cache(self._slots.bit(replica_id))
        return cache

    def _bound(self, cache: _Cache) -> None:
        marks = cache.marks
        while marks and (cache.tokens > cache.capacity or len(marks) > MAX_MARKS):
            mark = next(iter(marks))
            cache.tokens -= marks.pop(mark).adds
            self._holders.remove(mark, cache.bit)
