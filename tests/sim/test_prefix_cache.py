from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.sim.prefix_cache import CacheShape, Cleared, PrefixCache, Removed, Stored, extend_keys
from homing.sim.tokenizer import token_ids


def keys_of(tokens, block_size, salt=""):
    keys = []
    extend_keys(keys, token_ids(tokens), block_size, salt)
    return keys


def run(cache: PrefixCache, tokens: Sequence[int], salt: str = "") -> int | None:
    """A sequence that comes, is computed whole, and leaves. Reused tokens, or None if it did not fit."""
    size = cache.shape.block_size
    ids = token_ids(tokens)
    keys = keys_of(tokens, size, salt)
    found = cache.find(keys, len(ids))
    fresh = cache.acquire(found, -(-len(ids) // size) - len(found))
    if fresh is None:
        return None
    blocks = [*found, *fresh]
    cache.register(blocks, keys, ids, len(found), len(keys))
    cache.release(blocks)
    return len(found) * size


class NaiveCache:
    """The rule told with lists of tokens: one list of free blocks in order of eviction, no hashes."""

    def __init__(self, shape: CacheShape) -> None:
        self.size = shape.block_size
        self.free: list[dict] = [{"content": None, "holders": 0} for _ in range(shape.num_blocks - 1)]
        self.cached: list[dict] = []  # in order of registration

    def run(self, tokens: tuple[int, ...], salt: str) -> int | None:
        blocks: list[dict] = []
        for end in range(self.size, len(tokens), self.size):
            hit = next((b for b in self.cached if b["content"] == (salt, tokens[:end])), None)
            if hit is None:
                break
            blocks.append(hit)
        hits = len(blocks)
        needed = -(-len(tokens) // self.size) - hits
        rest = [b for b in self.free if not any(b is hit for hit in blocks)]
        if needed > len(rest):
            return None
        for victim in rest[:needed]:
            self.cached = [b for b in self.cached if b is not victim]
            victim["content"] = None
        blocks += rest[:needed]
        for i in range(hits, len(tokens) // self.size):
            blocks[i]["content"] = (salt, tokens[: (i + 1) * self.size])
            self.cached.append(blocks[i])
        blank = [b for b in blocks[::-1] if b["content"] is None]
        self.free = blank + rest[needed:] + [b for b in blocks[::-1] if b["content"] is not None]
        return hits * self.size


prompts = st.lists(st.integers(0, 1), max_size=14).map(tuple)


@settings(max_examples=300, deadline=None)
@given(
    block_size=st.integers(1, 4),
    num_blocks=st.integers(2, 12),
    requests=st.lists(st.tuples(prompts, st.sampled_from(["", "a", "b"])), max_size=25),
)
def test_reuse_equals_the_rule_told_naively(block_size, num_blocks, requests):
    shape = CacheShape(block_size, num_blocks)
    cache, naive = PrefixCache(shape), NaiveCache(shape)
    for tokens, salt in requests:
        assert run(cache, tokens, salt) == naive.run(tokens, salt)
        assert cache.free_blocks == num_blocks - 1


@pytest.mark.parametrize(
    ("length", "reused"), [(1, 0), (16, 0), (17, 16), (32, 16), (33, 32), (100, 96)], ids=lambda v: str(v)
)
def test_the_last_token_is_always_computed(length, reused):
    cache = PrefixCache(CacheShape(16, 100))
    assert run(cache, range(length)) == 0
    assert run(cache, range(length)) == reused


def test_only_whole_blocks_of_a_common_prefix_are_reused():
    cache = PrefixCache(CacheShape(4, 100))
    run(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert run(cache, [1, 2, 3, 4, 5, 6, 0, 0, 0]) == 4
    assert run(cache, [0, 2, 3, 4, 5, 6, 7, 8, 9]) == 0


def test_salts_share_nothing():
    cache = PrefixCache(CacheShape(4, 100))
    run(cache, range(9), "a")
    assert run(cache, range(9), "b") == 0
    assert run(cache, range(9), "a") == 8


def test_the_tail_of_the_least_recently_freed_goes_first():
    cache = PrefixCache(CacheShape(2, 7))  # six usable blocks
    run(cache, [1, 1, 2, 2, 3, 3])
    run(cache, [7, 7, 8, 8, 9, 9])
    run(cache, [5, 5])  # takes the block of [3, 3]
    assert run(cache, [1, 1, 2, 2, 3, 3, 4]) is not None
    assert cache.find(keys_of([7, 7, 8, 8, 9, 9], 2), 99) != []


def test_what_does_not_fit_changes_nothing():
    cache = PrefixCache(CacheShape(2, 4))
    run(cache, [1, 1, 2, 2, 3])
    assert cache.acquire(cache.find(keys_of([1, 1, 2, 2], 2), 5), 2) is None
    assert cache.free_blocks == 3
    assert run(cache, [1, 1, 2, 2, 3]) == 4


def test_a_held_block_is_not_evicted():
    cache = PrefixCache(CacheShape(2, 4))
    held = cache.acquire([], 2)
    assert held is not None
    cache.register(held, keys_of([1, 1, 2, 2], 2), token_ids([1, 1, 2, 2]), 0, 2)
    assert cache.acquire([], 2) is None
    assert run(cache, [8, 8]) == 0
    assert cache.find(keys_of([1, 1, 2, 2], 2), 5) == held


def test_usage_is_the_share_of_held_blocks():
    cache = PrefixCache(CacheShape(2, 5))
    held = cache.acquire([], 3)
    assert held is not None
    assert cache.usage == 0.75
    cache.release(held)
    assert cache.usage == 0.0


def test_clear_forgets_all_and_takes_no_blocks_from_a_sequence():
    cache = PrefixCache(CacheShape(2, 5))
    keys, tokens = keys_of([1, 1, 2, 2], 2), token_ids([1, 1, 2, 2])
    held = cache.acquire([], 2)
    assert held is not None
    cache.register(held, keys, tokens, 0, 2)
    cache.clear()
    assert cache.find(keys, 5) == []
    assert cache.usage == 0.5
    cache.release(held)
    assert run(cache, [1, 1, 2]) == 0
    assert run(cache, [1, 1, 2]) == 2


def test_events_tell_what_was_stored_and_removed_in_order():
    cache = PrefixCache(CacheShape(2, 4), record_events=True)
    first, second = keys_of([1, 1, 2, 2], 2)
    run(cache, [1, 1])
    run(cache, [1, 1, 2, 2, 3])
    assert cache.drain_events() == [
        Stored((first,), b"", token_ids([1, 1])),
        Stored((second,), first, token_ids([2, 2])),
    ]
    run(cache, [7, 7, 8])  # the two blocks freed longest ago: the empty tail, then [2, 2]
    (seven,) = keys_of([7, 7], 2)
    assert cache.drain_events() == [Removed((second,)), Stored((seven,), b"", token_ids([7, 7]))]
    cache.clear()
    assert cache.drain_events() == [Cleared()]
    assert cache.drain_events() == []


def test_memory_that_cannot_be_found_is_used_again_before_any_that_can():
    cache = PrefixCache(CacheShape(block_size=2, num_blocks=5))
    for first in (1, 4, 7):
        run(cache, (first, 2, 3))
    assert [run(cache, (first, 2, 0)) for first in (1, 4, 7)] == [2, 2, 2]
