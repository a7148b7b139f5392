from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.prefix import blocks
from homing.core.prefix.blocks import HeldBlocks, chain
from homing.core.prefix.events import CacheEvent, Cleared, Removed, Stored
from homing.sim import prefix_cache as sim
from homing.sim.tokenizer import token_ids

PROMPT = list(range(12))
NAMES = list(chain(PROMPT, 4))


def stored(*hashes: int, parent: int | None = None, tokens: list[int] | None = None, salt: bytes = b"") -> Stored:
    return Stored(hashes, parent, tokens or PROMPT[: 4 * len(hashes)], 4, (salt,) if salt else ())


@pytest.fixture
def held() -> HeldBlocks:
    return HeldBlocks()


def test_a_block_is_known_by_its_tokens_and_all_before_it(held: HeldBlocks):
    held.apply("a", stored(70, 71, 72))
    held.apply("b", stored(5))
    held.apply("b", Stored((6,), 5, PROMPT[4:8], 4))
    assert held.held(NAMES, 3) == {"a": 3, "b": 2}
    assert held.held(NAMES, 1) == {"a": 1, "b": 1}
    assert held.held(list(chain([9, *PROMPT[1:]], 4)), 3) == {}
    assert held.block_sizes == {4}


def test_a_salt_makes_other_blocks(held: HeldBlocks):
    held.apply("a", stored(1, 2, salt=b"acme"))
    assert held.held(NAMES, 2) == {}
    assert held.held(list(chain(PROMPT, 4, b"acme")), 2) == {"a": 2}


def test_the_rest_of_a_prompt_that_fills_no_block_has_no_name():
    assert list(chain(PROMPT[:11], 4)) == NAMES[:2]
    assert list(chain([], 4)) == []


def test_removed_blocks_are_not_held(held: HeldBlocks):
    held.apply("a", stored(1, 2, 3))
    held.apply("a", Removed((3, 99)))
    assert held.held(NAMES, 3) == {"a": 2}
    assert held.noted == held.blocks("a") == 2


def test_a_block_stored_twice_is_there_until_both_copies_are_removed(held: HeldBlocks):
    for _ in range(3):
        held.apply("a", stored(1))
    for left in ({"a": 1}, {"a": 1}, {}):
        held.apply("a", Removed((1,)))
        assert held.held(NAMES, 1) == left


def test_cleared_is_empty_and_complete(held: HeldBlocks):
    held.begin("a", complete=False)
    held.apply("a", stored(1, 2))
    assert not held.complete("a")
    held.apply("a", Cleared())
    assert held.held(NAMES, 3) == {}
    assert held.complete("a")


def test_blocks_behind_one_that_is_not_known_are_counted_and_ignored(held: HeldBlocks):
    held.begin("a", complete=True)
    held.apply("a", Stored((8, 9), 7, PROMPT[4:], 4))
    assert (held.noted, held.ignored) == (0, 2)
    assert held.held(NAMES, 3) == {}
    assert not held.complete("a")


def test_blocks_told_without_their_tokens_leave_the_cache_unknown(held: HeldBlocks):
    held.begin("a", complete=True)
    held.apply("a", Stored((1, 2, 3), None, PROMPT[:4], 4))
    assert (held.noted, held.ignored, held.complete("a")) == (1, 2, False)
    assert held.held(NAMES, 3) == {"a": 1}


def test_a_cold_replica_loses_its_blocks_and_nobody_elses(held: HeldBlocks):
    held.apply("a", stored(1, 2, 3))
    held.apply("b", stored(1, 2))
    held.forget("a")
    assert held.held(NAMES, 3) == {"b": 2}
    assert (held.noted, held.blocks("a"), held.complete("a")) == (2, 0, False)


def test_blocks_are_bounded(held: HeldBlocks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blocks, "MAX_BLOCKS", 2)
    held.apply("a", stored(1, 2, 3))
    assert (held.noted, held.ignored) == (2, 1)
    assert held.held(NAMES, 3) == {"a": 2}
    held.apply("a", Removed((2,)))
    held.apply("a", Stored((2,), 1, PROMPT[4:8], 4))
    assert held.held(NAMES, 3) == {"a": 2}


def translated(event: sim.CacheEvent) -> CacheEvent:
    """As it comes over the wire: whole hashes are the low 64 bits of a key."""
    match event:
        case sim.Stored(keys, parent, tokens, salt):
            hashes = [low(key) for key in keys]
            return Stored(hashes, low(parent) if parent else None, list(tokens), 2, (salt.encode(),) if salt else ())
        case sim.Removed(keys):
            return Removed([low(key) for key in keys])
        case _:
            return Cleared()


def low(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


prompts = st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=10), st.booleans()), max_size=25)


def serve(cache: sim.PrefixCache, tokens: list[int], copies: int) -> None:
    """Several at once: they compute the same blocks each for itself, and give them back together."""
    ids, keys, running = token_ids(tokens), list[bytes](), []
    sim.extend_keys(keys, ids, 2)
    for _ in range(copies):
        found = cache.find(keys, len(ids))
        fresh = cache.acquire(found, -(-len(ids) // 2) - len(found))
        if fresh is not None:
            running.append((len(found), [*found, *fresh]))
    for start, taken in running:
        cache.register(taken, keys, ids, start, len(keys))
    for _, taken in running:
        cache.release(taken)


@given(prompts)
def test_the_index_holds_what_a_replicas_cache_holds(served: list[tuple[list[int], bool]]):
    """The sim's cache is vLLM's by calibration: what it finds of a prompt, block by block, is what the index says."""
    cache = sim.PrefixCache(sim.CacheShape(2, 9), record_events=True)
    held = HeldBlocks()
    for tokens, twin in served:
        serve(cache, tokens, 2 if twin else 1)
        for event in cache.drain_events():
            held.apply("a", translated(event))
    for tokens, _ in served:
        keys: list[bytes] = []
        sim.extend_keys(keys, token_ids(tokens), 2)
        for key, name in zip(keys, chain(tokens, 2), strict=True):
            assert held.held([name], 1) == ({"a": 1} if cache.find([key], 3) else {})
