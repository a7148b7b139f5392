"""The paged KV cache with prefix reuse, by vLLM's rule (vllm/v1/core/block_pool.py, kv_cache_manager.py).

- A block is `block_size` tokens. Only full blocks are found again; a block's key covers all tokens before it.
- The last token of a prompt is always computed, so at most (n - 1) // block_size blocks are reused.
- A block that no sequence holds stays findable until its memory is needed: least recently freed first, and of one
  sequence the tail first. Before them go blocks that cannot be found: those freed before they were full, the latest
  first, then those that never held anything.
- The same content may lie in several blocks: a block is registered when it fills, whoever else holds a copy.
- The salt enters the first block's key, so that different salts share nothing.
- One block of the pool is reserved (vLLM's null block).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from homing.sim.tokenizer import TokenIds

ROOT = b""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """`block_size` in tokens, `num_blocks` as vLLM's num_gpu_blocks (one of them reserved)."""

    block_size: int = 16
    num_blocks: int = 8192

    @property
    def capacity_tokens(self) -> int:
        return (self.num_blocks - 1) * self.block_size


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks became findable. `tokens` are theirs alone, `parent` is the key before the first ("" at the start)."""

    keys: tuple[bytes, ...]
    parent: bytes
    tokens: TokenIds
    salt: str = ""  # of the first of all blocks, whose key it is part of


@dataclass(frozen=True, slots=True)
class Removed:
    """A copy of these blocks was overwritten (vLLM says so of every copy, not only of the last)."""

    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything was forgotten."""


CacheEvent = Stored | Removed | Cleared


def extend_keys(keys: list[bytes], tokens: TokenIds, block_size: int, salt: str = "") -> None:
    """Append the keys of the blocks of `tokens` that are full and not in `keys` yet."""
    done = len(keys)
    full = len(tokens) // block_size
    if full <= done:
        return
    data = tokens[done * block_size : full * block_size].tobytes()
    width = block_size * tokens.itemsize
    parent = keys[-1] if keys else ROOT
    for start in range(0, len(data), width):
        extra = salt.encode("utf-8", "replace") if parent == ROOT else b""
        parent = xxhash.xxh3_128_digest(parent + data[start : start + width] + extra)
        keys.append(parent)


class PrefixCache:
    """Which blocks are held, findable or free. Blocks are numbers; what lies in them is known by key only."""

    def __init__(self, shape: CacheShape, *, record_events: bool = False) -> None:
        self.shape = shape
        self.usable_blocks = shape.num_blocks - 1
        self._holders: list[int] = []  # by block: how many sequences hold it
        self._keys: list[bytes | None] = []  # by block: what it is registered as
        # By key: the block, or where there are several, the blocks, oldest first. Mostly there is one, and the cache
        # of a large replica has half a million keys.
        self._copies: dict[bytes, int | dict[int, None]] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # findable, held by nobody; next victim first
        self._blank: deque[int] = deque()  # used before, not findable, held by nobody; next to be taken first
        self._events: list[CacheEvent] | None = [] if record_events else None

    @property
    def free_blocks(self) -> int:
        return self.usable_blocks - len(self._holders) + len(self._idle) + len(self._blank)

    @property
    def usage(self) -> float:
        """Share of blocks that sequences hold, 0 to 1: vLLM's kv_cache_usage_perc."""
        return 1.0 - self.free_blocks / self.usable_blocks if self.usable_blocks else 0.0

    def find(self, keys: Sequence[bytes], tokens: int) -> list[int]:
        """The blocks that a prompt of `tokens` tokens can reuse, in order. Holds nothing yet."""
        found = []
        for key in keys[: max(tokens - 1, 0) // self.shape.block_size]:
            copies = self._copies.get(key)
            if copies is None:
                break
            found.append(copies if isinstance(copies, int) else next(iter(copies)))
        return found

    def fits(self, found: Sequence[int], new_blocks: int) -> bool:
        """Whether `acquire` would succeed."""
        revived = sum(1 for block in found if self._holders[block] == 0)
        return new_blocks <= self.free_blocks - revived

    def acquire(self, found: Sequence[int], new_blocks: int) -> list[int] | None:
        """Hold the `found` blocks and `new_blocks` fresh ones, which it returns; None, changing nothing, if too few."""
        if not self.fits(found, new_blocks):
            return None
        for block in found:
            if self._holders[block] == 0:
                del self._idle[block]
            self._holders[block] += 1
        return [self._take() for _ in range(new_blocks)]

    def register(
        self, blocks: Sequence[int], keys: Sequence[bytes], tokens: TokenIds, start: int, end: int, salt: str = ""
    ) -> None:
        """Blocks `start` to `end` of a sequence are full: make them findable. The rest is the whole sequence's."""
        size = self.shape.block_size
        for i in range(start, end):
            self._keys[blocks[i]] = keys[i]
            self._add_copy(keys[i], blocks[i])
        if start < end and self._events is not None:
            parent = keys[start - 1] if start else ROOT
            span = tokens[start * size : end * size]
            self._events.append(Stored(tuple(keys[start:end]), parent, span, "" if start else salt))

    def release(self, blocks: Sequence[int]) -> None:
        """Give a sequence's blocks back, the tail first."""
        blank = []
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                if self._keys[block] is None:
                    blank.append(block)
                else:
                    self._idle[block] = None
        self._blank.extendleft(reversed(blank))

    def clear(self) -> None:
        """Nothing is findable any more. Sequences keep the blocks they hold."""
        self._keys = [None] * len(self._keys)
        self._copies.clear()
        if self._events is not None:
            self._events.append(Cleared())

    def drain_events(self) -> list[CacheEvent]:
        """What happened since the last call, in order."""
        events = self._events or []
        if events:
            self._events = []
        return events

    def _take(self) -> int:
        if self._blank:
            block = self._blank.popleft()
            self._holders[block] = 1
            return block
        if len(self._holders) < self.usable_blocks:
            self._holders.append(1)
            self._keys.append(None)
            return len(self._holders) - 1
        block, _ = self._idle.popitem(last=False)
        self._forget(block)
        self._holders[block] = 1
        return block

    def _add_copy(self, key: bytes, block: int) -> None:
        known = self._copies.get(key)
        if known is None:
            self._copies[key] = block
        elif isinstance(known, int):
            self._copies[key] = {known: None, block: None}
        else:
            known[block] = None

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        if key is None:
            return
        self._keys[block] = None
        copies = self._copies[key]
        if isinstance(copies, int):
            del self._copies[key]
        else:
            del copies[block]
            if not copies:
                del self._copies[key]
        if self._events is not None:
            self._events.append(Removed((key,)))
