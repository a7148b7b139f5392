"""A sequence's hold on KV blocks: what vLLM's KVCacheManager does between scheduler and block pool."""

from __future__ import annotations

from homing.sim.engine import Counters
from homing.sim.prefix_cache import PrefixCache, extend_keys
from homing.sim.sequence import Sequence


class Slots:
    """Changes the block lists of sequences, and the counters of reuse."""

    def __init__(self, cache: PrefixCache, counters: Counters, *, prefix_caching: bool = True) -> None:
        self._cache = cache
        self._counters = counters
        self._size = cache.shape.block_size
        self._prefix_caching = prefix_caching

    def find(self, sequence: Sequence) -> list[int]:
        """The blocks that a sequence without blocks can reuse."""
        if not self._prefix_caching or not sequence.reads_cache:
            return []
        extend_keys(sequence.keys, sequence.tokens, self._size, sequence.salt)
        return self._cache.find(sequence.keys, len(sequence.tokens))

    def fits(self, tokens: int, found: list[int]) -> bool:
        """Whether `tokens` tokens would fit now, `found` being reused."""
        return self._cache.fits(found, self._blocks(tokens) - len(found))

    def admit(self, sequence: Sequence, found: list[int], tokens: int) -> bool:
        """Hold `found` and room for the first `tokens` tokens. False, and no change, if it does not fit."""
        fresh = self._cache.acquire(found, self._blocks(tokens) - len(found))
        if fresh is None:
            return False
        sequence.blocks = [*found, *fresh]
        sequence.registered = len(found)
        sequence.computed = len(found) * self._size
        if sequence.preemptions == 0:  # vLLM counts the look-ups of resumed sequences apart
            sequence.cached_tokens = sequence.computed
            if self._prefix_caching:
                sequence.created_tokens = len(sequence.tokens) // self._size * self._size - sequence.computed
            if self._prefix_caching and sequence.reads_cache:
                self._counters.prefix_queries += len(sequence.tokens)
                self._counters.prefix_hits += sequence.computed
        return True

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Hold room for the first `tokens` tokens. False, and no change, if it does not fit."""
        missing = self._blocks(tokens) - len(sequence.blocks)
        if missing <= 0:
            return True
        fresh = self._cache.acquire((), missing)
        if fresh is None:
            return False
        sequence.blocks += fresh
        return True

    def commit(self, sequence: Sequence, tokens: int) -> None:
        """The first `tokens` tokens are computed, or about to be: their full blocks are findable from now on."""
        if not self._prefix_caching:
            return
        full = tokens // self._size
        if full > sequence.registered:
            extend_keys(sequence.keys, sequence.tokens, self._size, sequence.salt)
            start = sequence.registered
            self._cache.register(sequence.blocks, sequence.keys, sequence.tokens, start, full, sequence.salt)
            sequence.registered = full

    def release(self, sequence: Sequence) -> None:
        self._cache.release(sequence.blocks)
        sequence.blocks = []
        sequence.registered = sequence.computed = 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._size)
