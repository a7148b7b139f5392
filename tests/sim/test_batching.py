from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.sim.batching import BatchingEngine, Limits
from homing.sim.prefix_cache import CacheShape, PrefixCache
from homing.sim.sequence import FinishReason, Sequence
from homing.sim.time_model import StepLoad
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


@dataclass
class OneSecond:
    """Every step takes one second. Remembers what was in each."""

    loads: list[StepLoad] = field(default_factory=list)

    def step_s(self, load: StepLoad) -> float:
        self.loads.append(load)
        return 1.0

    @property
    def tokens(self) -> list[int]:
        return [load.tokens for load in self.loads]


def sequence(tokens, max_tokens=1):
    return Sequence(tokens=token_ids(tokens), max_tokens=max_tokens, sampler=Counting())


def build(*, num_blocks=101, seqs=10, budget=100, **options):
    times = OneSecond()
    cache = PrefixCache(CacheShape(4, num_blocks))
    return BatchingEngine(cache, times, Limits(seqs, budget), **options), times


def run(engine, until_s=1000.0):
    """Who got a token when, until nothing is due."""
    history = []
    while (due := engine.due_s) is not None and due <= until_s:
        history += [(due, moved) for moved in engine.advance(due)]
    return history


def test_a_sequence_ends_when_its_sampler_stops():
    engine, _ = build()
    one = Sequence(tokens=token_ids([1]), max_tokens=9, sampler=Counting(last=1002))
    engine.submit(one, 0.0)
    run(engine)
    assert (list(one.output), one.finish_reason) == ([1000, 1001, 1002], FinishReason.STOP)
    assert engine.cache.usage == 0.0


def test_a_sequence_gets_its_first_token_after_one_step_and_one_a_step_from_then_on():
    engine, times = build()
    one = sequence(range(10), 3)
    engine.submit(one, 5.0)
    assert run(engine) == [(6.0, one), (7.0, one), (8.0, one)]
    assert one.finish_reason is FinishReason.LENGTH
    assert times.loads == [StepLoad(10, 10, 55), StepLoad(1, 11, 11), StepLoad(1, 12, 12)]
    assert (engine.running, engine.waiting, engine.cache.usage, engine.due_s) == (0, 0, 0.0, None)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    engine, times = build(budget=8)
    one = sequence(range(20))
    engine.submit(one, 0.0)
    assert run(engine) == [(3.0, one)]
    assert times.tokens == [8, 8, 4]
    assert times.loads[1] == StepLoad(8, 16, 8 * 8 + 36)


def test_decodes_go_on_beside_the_chunks_of_a_prefill():
    engine, times = build(budget=8)
    first, second = sequence(range(4), 4), sequence(range(100, 120))
    engine.submit(first, 0.0)
    engine.advance(0.0)
    engine.submit(second, 0.5)
    assert run(engine) == [(1.0, first), (2.0, first), (3.0, first), (4.0, first), (4.0, second)]
    assert times.tokens == [4, 8, 8, 7]


def test_one_that_comes_during_a_step_waits_for_its_end():
    engine, _ = build()
    first, second = sequence([1], 2), sequence([2])
    engine.submit(first, 0.0)
    engine.advance(0.0)
    engine.submit(second, 0.25)
    assert engine.waiting == 1
    run(engine)
    assert (second.arrived_s, second.scheduled_s) == (0.25, 1.0)


def test_no_more_than_max_num_seqs_run_and_the_others_come_in_order():
    engine, _ = build(seqs=2)
    all_three = [sequence([i], 2) for i in range(3)]
    for each in all_three:
        engine.submit(each, 0.0)
    engine.advance(0.0)
    assert (engine.running, engine.waiting) == (2, 1)
    first, second, third = all_three
    assert run(engine) == [(1.0, first), (1.0, second), (2.0, first), (2.0, second), (3.0, third), (4.0, third)]


def test_a_cached_prefix_is_not_computed_again():
    engine, times = build()
    engine.submit(sequence(range(10)), 0.0)
    run(engine)
    again = sequence(range(10))
    engine.submit(again, 10.0)
    run(engine)
    assert again.cached_tokens == 8
    assert times.tokens == [10, 2]
    assert (engine.counters.prefix_queries, engine.counters.prefix_hits) == (20, 8)


def test_two_equal_prompts_in_one_step_share_blocks_as_in_vllm():
    engine, times = build()
    pair = [sequence(range(9)) for _ in range(2)]
    for each in pair:
        engine.submit(each, 0.0)
    run(engine)
    assert [each.cached_tokens for each in pair] == [0, 8]
    assert times.tokens == [10]


def test_without_prefix_caching_all_is_computed_and_nothing_counted():
    engine, times = build(prefix_caching=False)
    for at in (0.0, 10.0):
        engine.submit(sequence(range(10)), at)
        run(engine)
    assert times.tokens == [10, 10]
    assert engine.counters.prefix_queries == 0


def test_the_last_admitted_is_preempted_when_memory_runs_out_and_comes_back_first():
    engine, times = build(num_blocks=5)  # four blocks of four tokens
    first, second, third = sequence(range(7), 6), sequence(range(100, 107), 6), sequence([9])
    for each in (first, second, third):
        engine.submit(each, 0.0)
    history = run(engine)
    assert [at for at, moved in history if moved is first] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [at for at, moved in history if moved is second] == [1.0, 2.0, 7.0, 8.0, 9.0, 10.0]
    assert [at for at, moved in history if moved is third] == [7.0]
    assert times.tokens[6] == 6  # five of the resumed one, whose first block was still there, and the third's
    assert (first.preemptions, second.preemptions, engine.counters.preemptions) == (0, 1, 1)
    assert list(second.output) == list(range(1000, 1006))
    assert second.cached_tokens == 0
    assert engine.cache.usage == 0.0


def test_a_prompt_waits_until_all_of_it_fits():
    engine, _ = build(num_blocks=5, budget=4)
    first, second = sequence(range(8), 2), sequence(range(100, 112))
    engine.submit(first, 0.0)
    engine.submit(second, 0.0)
    engine.advance(0.0)
    assert (engine.running, engine.waiting) == (1, 1)
    run(engine)
    assert (second.preemptions, second.output_tokens) == (0, 1)


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_an_aborted_sequence_leaves_nothing_behind(when):
    engine, _ = build(seqs=1)
    first, second = sequence(range(9), 5), sequence(range(9), 5)
    engine.submit(first, 0.0)
    engine.submit(second, 0.0)
    engine.advance(0.0)
    victim = first if when == "running" else second
    engine.finish(victim, FinishReason.ABORT)
    history = run(engine)
    assert victim not in [moved for _, moved in history]
    assert len(history) == 5
    assert (engine.running, engine.waiting, engine.cache.usage) == (0, 0, 0.0)


def test_a_loop_that_was_away_long_does_not_run_after_the_time():
    engine, _ = build()
    one = sequence([1], 2)
    engine.submit(one, 0.0)
    engine.advance(0.0)
    assert list(engine.advance(60.0)) == [one]
    assert engine.due_s == 61.0


def test_one_that_comes_while_the_loop_is_late_is_not_served_before_it_came():
    engine, _ = build()
    first, second = sequence([1]), sequence([2])
    engine.submit(first, 0.0)
    engine.advance(0.0)
    engine.submit(second, 1.25)
    assert list(engine.advance(1.3)) == [first]
    assert engine.due_s == 1.25
    assert run(engine) == [(2.25, second)]
    assert (second.scheduled_s, second.first_token_s) == (1.25, 2.25)


def test_times_are_those_of_the_steps_however_late_the_loop():
    engine, _ = build()
    one = sequence([1], 3)
    engine.submit(one, 0.0)
    for now in (0.1, 1.4, 2.2, 3.3):
        engine.advance(now)
    assert (one.first_token_s, one.itl_s, one.last_token_s) == (1.0, 1.0, 3.0)


def test_a_little_lag_does_not_shift_the_steps():
    engine, _ = build()
    engine.submit(sequence([1], 5), 0.0)
    engine.advance(0.0)
    engine.advance(1.1)
    assert engine.due_s == 2.0


@settings(max_examples=150, deadline=None)
@given(
    num_blocks=st.integers(9, 30),
    seqs=st.integers(1, 4),
    budget=st.integers(1, 20),
    arrivals=st.lists(
        st.tuples(st.integers(0, 10), st.integers(1, 20), st.integers(1, 10), st.booleans()), min_size=1, max_size=12
    ),
)
def test_whatever_comes_every_sequence_ends_whole_and_all_memory_returns(num_blocks, seqs, budget, arrivals):
    engine, times = build(num_blocks=num_blocks, seqs=seqs, budget=budget)
    sequences = []
    for gap, length, max_tokens, aborts in arrivals:
        one = sequence([i % 3 for i in range(length)], max_tokens)
        now = (sequences[-1].arrived_s if sequences else 0.0) + gap
        run(engine, now)
        engine.submit(one, now)
        sequences.append(one)
        if aborts:
            engine.finish(one, FinishReason.ABORT)
    run(engine, 1e9)
    assert all(s.output_tokens == s.max_tokens or s.finish_reason is FinishReason.ABORT for s in sequences)
    assert (engine.running, engine.waiting, engine.cache.usage) == (0, 0, 0.0)
    assert max(times.tokens, default=0) <= budget
