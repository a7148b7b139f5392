from itertools import count

import pytest

from homing.sim.paced import PacedEngine
from homing.sim.prefix_cache import CacheShape, PrefixCache
from homing.sim.sequence import FinishReason, Sequence
from homing.sim.tokenizer import token_ids


class Counting:
    """Says 1000, 1001, ... and stops after `last`."""

    stopped = False

    def __init__(self, last: int | None = None) -> None:
        self._numbers = count(1000)
        self._last = last

    def take(self) -> int:
        number = next(self._numbers)
        self.stopped = number == self._last
        return number


def sequence(tokens, max_tokens):
    return Sequence(tokens=token_ids(tokens), max_tokens=max_tokens, sampler=Counting())


def engine(*, block_size=4, num_blocks=101, max_num_seqs=10):
    cache = PrefixCache(CacheShape(block_size, num_blocks))
    return PacedEngine(cache, ttft_s=1.0, itl_s=0.25, max_num_seqs=max_num_seqs)


def run_until_idle(engine):
    """Token times, as (time, sequence)."""
    times = []
    while (due := engine.due_s) is not None:
        times += [(due, moved) for moved in engine.advance(due)]
    return times


def test_a_sequence_ends_when_its_sampler_stops():
    paced = engine()
    one = Sequence(tokens=token_ids([1]), max_tokens=9, sampler=Counting(last=1002))
    paced.submit(one, 0.0)
    run_until_idle(paced)
    assert (list(one.output), one.finish_reason) == ([1000, 1001, 1002], FinishReason.STOP)
    assert paced.cache.usage == 0.0


def test_tokens_come_at_their_times():
    paced, one = engine(), sequence(range(10), 4)
    paced.submit(one, 5.0)
    assert [time for time, _ in run_until_idle(paced)] == [6.0, 6.25, 6.5, 6.75]
    assert list(one.output) == [1000, 1001, 1002, 1003]
    assert one.finish_reason is FinishReason.LENGTH
    assert (paced.running, paced.waiting, paced.cache.usage) == (0, 0, 0.0)


def test_a_late_loop_gives_each_sequence_one_token_a_call():
    paced = engine()
    pair = [sequence([i], 3) for i in range(2)]
    for each in pair:
        paced.submit(each, 0.0)
    assert list(paced.advance(100.0)) == pair
    assert [each.output_tokens for each in pair] == [1, 1]


def test_an_answer_is_reused_in_the_next_turn_except_for_its_last_token():
    paced, first = engine(), sequence(range(6), 7)
    paced.submit(first, 0.0)
    run_until_idle(paced)
    second = sequence([*first.tokens, 1, 2, 3, 4], 1)
    paced.submit(second, 10.0)
    assert second.cached_tokens == 12  # 13 tokens; the last one's KV was never computed
    assert (paced.counters.prefix_queries, paced.counters.prefix_hits) == (6 + 17, 12)


@pytest.mark.parametrize(("length", "max_tokens", "reusable"), [(4, 4, 4), (4, 5, 8), (4, 1, 4)])
def test_a_block_is_findable_once_all_its_tokens_were_computed(length, max_tokens, reusable):
    paced, first = engine(), sequence(range(length), max_tokens)
    paced.submit(first, 0.0)
    run_until_idle(paced)
    second = sequence([*first.tokens, *range(50, 60)], 1)
    paced.submit(second, 10.0)
    assert second.cached_tokens == reusable


def test_sequences_past_the_limit_wait_in_order():
    paced = engine(max_num_seqs=1)
    first, second = sequence([1], 1), sequence([2], 1)
    paced.submit(first, 0.0)
    paced.submit(second, 0.0)
    assert (paced.running, paced.waiting) == (1, 1)
    assert run_until_idle(paced) == [(1.0, first), (2.0, second)]
    assert second.scheduled_s == 1.0


def test_a_sequence_waits_for_memory():
    paced = engine(num_blocks=4)
    first, second = sequence(range(8), 1), sequence(range(50, 58), 1)
    paced.submit(first, 0.0)
    paced.submit(second, 0.0)
    assert (paced.running, paced.waiting) == (1, 1)
    paced.finish(first, FinishReason.ABORT)
    assert (paced.running, paced.waiting) == (1, 0)


@pytest.mark.parametrize("waits", [True, False])
def test_an_aborted_sequence_leaves_nothing_behind(waits):
    paced = engine(max_num_seqs=1)
    blocker, one = sequence([1], 1), sequence(range(9), 5)
    if waits:
        paced.submit(blocker, 0.0)
    paced.submit(one, 0.0)
    paced.finish(one, FinishReason.ABORT)
    paced.finish(one, FinishReason.ABORT)
    run_until_idle(paced)
    assert one.output_tokens == 0
    assert (paced.running, paced.waiting, paced.cache.usage) == (0, 0, 0.0)


def test_one_that_skips_the_cache_neither_reads_nor_counts():
    paced, first = engine(), sequence(range(9), 1)
    paced.submit(first, 0.0)
    run_until_idle(paced)
    second = sequence(range(9), 1)
    second.reads_cache = False
    paced.submit(second, 5.0)
    assert second.cached_tokens == 0
    assert paced.counters.prefix_queries == 9
