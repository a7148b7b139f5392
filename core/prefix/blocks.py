"""The precise index: which blocks each replica of one pool holds, by the tokens in them.

An engine's hashes are opaque: another engine, or the same one after a restart, may have others for the same tokens. A
block is known here by a chained hash of our own over its tokens and all before it (`chain`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from homing.core.prefix.events import CacheEvent, Removed, Stored
from homing.core.prefix.holders import Holders, Slots, lengths

MAX_BLOCKS = 1_000_000
"""Of all replicas of a pool: about 220 MB. A block that comes when there are so many is not noted."""

_ROOT = bytes(8)


def chain(token_ids: Sequence[int], block_size: int, first_extra: bytes = b"") -> Iterator[int]:
    """Our names of the full blocks of a prompt. `first_extra`: what enters the first block's identity (a salt)."""
    return _linked(_ROOT, token_ids, block_size, (first_extra,))


def _linked(parent: bytes, token_ids: Sequence[int], block_size: int, extras: Sequence[bytes]) -> Iterator[int]:
    data, width = array("I", token_ids).tobytes(), 4 * block_size
    for i in range(len(token_ids) // block_size):
        extra = extras[i] if i < len(extras) else b""
        name = xxh3_64_intdigest(parent + data[i * width : (i + 1) * width] + extra)
        parent = name.to_bytes(8, "little")
        yield name


@dataclass(slots=True)
class _Cache:
    """One replica. `names`: the engine's hash -> ours. `copies`: of blocks that it holds more than once, how many more.
    `complete`: everything that it holds is known, so that what is not known is not held."""

    bit: int
    names: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    complete: bool = False


class HeldBlocks:
    """Fed by each replica's events in their order."""

    __slots__ = ("_block_sizes", "_caches", "_holders", "_slots", "ignored", "noted")

    def __init__(self) -> None:
        self._slots = Slots()
        self._holders = Holders()
        self._caches: dict[str, _Cache] = {}
        self._block_sizes: set[int] = set()
        self.noted = 0
        """Blocks, each counted once for every replica that holds it."""
        self.ignored = 0
        """Blocks that could not be noted: behind one that is not known, told without tokens, or beyond MAX_BLOCKS."""

    @property
    def block_sizes(self) -> frozenset[int]:
        """Those that the engines said; in tokens."""
        return frozenset(self._block_sizes)

    def blocks(self, replica_id: str) -> int:
        cache = self._caches.get(replica_id)
        return len(cache.names) if cache is not None else 0

    def complete(self, replica_id: str) -> bool:
        """Whether what is not known here is not held there."""
        cache = self._caches.get(replica_id)
        return cache is not None and cache.complete

    def begin(self, replica_id: str, *, complete: bool) -> None:
        """The replica's events begin here. `complete`: it holds nothing yet."""
        self.forget(replica_id)
        self._cache(replica_id).complete = complete

    def apply(self, replica_id: str, event: CacheEvent) -> None:
        cache = self._cache(replica_id)
        match event:
            case Stored():
                self._store(cache, event)
            case Removed():
                self._remove(cache, event)
            case _:
                self.begin(replica_id, complete=True)

    def forget(self, replica_id: str) -> None:
        """The replica is cold, or gone, or its events stopped."""
        cache = self._caches.pop(replica_id, None)
        if cache is not None:
            for name in cache.names.values():
                self._holders.remove(name, cache.bit)
            self.noted -= len(cache.names)
            self._slots.free(replica_id)

    def held(self, names: Sequence[int], count: int) -> dict[str, int]:
        """Replica id -> how many of the first `count` blocks of a chain it holds; who holds none is not in it."""
        return {
            replica_id: length
            for bits, length in lengths(self._holders, names, count)
            for replica_id in self._slots.ids(bits)
        }

    def _store(self, cache: _Cache, event: Stored) -> None:
        if event.parent is None:
            parent = _ROOT
        elif (known := cache.names.get(event.parent)) is not None:
            parent = known.to_bytes(8, "little")
        else:
            self._ignore(cache, len(event.hashes))
            return
        self._block_sizes.add(event.block_size)
        names = _linked(parent, event.token_ids, event.block_size, event.extras)
        self._ignore(cache, len(event.hashes) - len(event.token_ids) // event.block_size)  # told without their tokens
        for hashed, name in zip(event.hashes, names, strict=False):
            if hashed in cache.names:
                cache.copies[hashed] = cache.copies.get(hashed, 0) + 1
            elif self.noted >= MAX_BLOCKS:
                self._ignore(cache, 1)
            else:
                cache.names[hashed] = name
                self._holders.add(name, cache.bit)
                self.noted += 1

    def _ignore(self, cache: _Cache, blocks: int) -> None:
        if blocks > 0:
            self.ignored += blocks
            cache.complete = False

    def _remove(self, cache: _Cache, event: Removed) -> None:
        for hashed in event.hashes:
            more = cache.copies.pop(hashed, 0)
            if more > 1:
                cache.copies[hashed] = more - 1
            elif not more and (name := cache.names.pop(hashed, None)) is not None:
                self._holders.remove(name, cache.bit)
                self.noted -= 1

    def _cache(self, replica_id: str) -> _Cache:
        cache = self._caches.get(replica_id)
        if cache is None:
            cache = self._caches[replica_id] = _Cache(self._slots.bit(replica_id))
        return cache
