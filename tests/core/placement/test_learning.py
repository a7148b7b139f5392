"""What is learned: speeds, retention, activity, and what a pool's traffic is like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.placement.activity import STEP_S, STEPS, Activity
from homing.core.placement.learned import TOKENS_TOLD, Learned
from homing.core.placement.retention import PRIOR_TOKENS, Retention
from homing.core.placement.settings import Settings
from homing.core.placement.speed import MOST_FASTER, TOKENS_WORTH, Speed


def taught(speed: Speed, tokens: float, seconds: float, times: int, *, at_most: bool = False) -> float:
    for _ in range(times):
        speed.observe(tokens, seconds, at_most=at_most, assumed=8000.0)
    return speed.learned(8000.0)


@pytest.mark.parametrize("true", [500.0, 4000.0, 12_000.0, 100_000.0])
def test_a_speed_is_learned_whatever_was_assumed(true: float):
    assert taught(Speed(), 4000, 4000 / true, 800) == pytest.approx(true, rel=0.15)


def test_a_half_as_fast_replica_is_known_as_such_after_twenty_requests():
    assert taught(Speed(), 4000, 1.0, 20) < 5000


def test_few_tokens_say_nothing():
    assert taught(Speed(), TOKENS_WORTH - 1, 10.0, 50) == 8000.0


def test_one_first_token_that_came_at_once_is_taken_for_a_cache_hit():
    assert taught(Speed(), 100_000, 0.01, 1) <= 8000.0 * MOST_FASTER


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, 8000.0), (2.0, 2020.0)])
def test_what_may_have_been_cached_teaches_only_that_it_is_slower(seconds: float, expected: float):
    assert taught(Speed(), 4000, seconds, 300, at_most=True) == pytest.approx(expected, rel=0.05)


def test_what_siblings_learned_counts_alike_and_goes_with_them():
    taught_speed, other = Speed(), Speed()
    taught(taught_speed, 4000, 1.0, 50)
    other.hear(*taught_speed.own)
    assert other.learned(8000.0) == pytest.approx(taught_speed.learned(8000.0), rel=0.05)
    other.hear(*(-part for part in taught_speed.own))
    assert other.learned(8000.0) == 8000.0


@pytest.mark.parametrize(("found", "kept"), [(8000, 1.0), (4000, 0.5), (0, 0.0)])
def test_retention_is_what_is_found_of_what_is_expected(found: float, kept: float):
    retention = Retention()
    assert retention.kept == 1.0
    for _ in range(200):
        retention.sent(10_000, 8000)
        retention.told(3 * 10_000, 3 * found)  # three pickers like this one
    assert retention.kept == pytest.approx(kept, abs=0.1)


def test_what_few_requests_tell_of_retention_is_not_forgotten_while_nobody_asks():
    retention = Retention()
    for _ in range(10):
        retention.sent(10_000, 8000)
        retention.told(10_000, 4000)
        for _ in range(9):
            retention.told(0, 0)  # ten seconds for each request
    assert retention.kept == (40_000 + PRIOR_TOKENS) / (80_000 + PRIOR_TOKENS)


def test_an_engine_that_says_nothing_leaves_the_assumption():
    retention = Retention()
    retention.sent(10_000, 8000)
    assert retention.kept == 1.0


def test_a_session_counts_once_with_its_last_size_and_leaves_when_unused():
    activity = Activity()
    activity.used(1000, 5.0)
    activity.used(3000, 25.0, before=(5.0, 1000))
    assert (activity.sessions, activity.tokens) == (1, 3000)
    activity.advance(25.0 + STEP_S * (STEPS - 1) - 5.1)
    assert activity.sessions == 1
    activity.advance(25.0 + STEP_S * STEPS)
    assert (activity.sessions, activity.tokens) == (0, 0)
    activity.used(4000, 500.0, before=(25.0, 3000))
    assert (activity.sessions, activity.tokens) == (1, 4000)


def test_one_that_moved_or_ended_is_taken_out():
    activity = Activity()
    activity.used(1000, 5.0)
    activity.used(500, 5.0)
    activity.left((5.0, 1000), 12.0)
    assert (activity.sessions, activity.tokens) == (1, 500)


def test_one_whose_last_use_is_not_known_is_taken_out_of_the_longest_unused():
    activity = Activity()
    activity.used(1000, 5.0)
    activity.used(1000, 15.0)
    activity.grown(1500, 1000, 25.0)
    assert (activity.sessions, activity.tokens) == (2, 2500)


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(0, 3), st.integers(0, 10_000)), max_size=60))
def test_it_counts_what_a_list_of_sessions_would(uses: list[tuple[float, int, int]]):
    activity, last, now = Activity(), dict[int, tuple[float, float]](), 0.0
    for pause, session, tokens in uses:
        now += pause
        activity.used(tokens, now, last.get(session))
        last[session] = (now, tokens)
        steps = int(now / STEP_S)
        active = [size for at, size in last.values() if steps - int(at / STEP_S) < STEPS]
        assert (activity.sessions, activity.tokens) == (len(active), pytest.approx(sum(active), abs=1e-3))


def test_further_turns_begin_at_the_assumption_and_are_learned():
    learned = Learned(Settings(further_turns=8.0))
    assert learned.further_turns == 8.0
    for _ in range(500):
        learned.begun(1000)
        learned.continued(100)
    assert learned.further_turns == pytest.approx(1.0, abs=0.2)


def test_what_a_later_turn_prefills_begins_at_a_quarter_of_a_first_prompt():
    learned = Learned(Settings())
    assert learned.uncached == 250.0
    for _ in range(200):
        learned.begun(40)
    assert learned.uncached < 20
    for _ in range(500):
        learned.continued(700)
    assert learned.uncached == pytest.approx(700, rel=0.1)


def test_bytes_for_a_token_are_what_the_engines_counted():
    learned = Learned(Settings(bytes_per_token=4.0))
    learned.counted(1000, 0)  # prompts that nobody of us sent say nothing
    learned.counted(TOKENS_TOLD / 2, 3 * TOKENS_TOLD / 2)
    assert learned.bytes_per_token == 4.0
    learned.counted(TOKENS_TOLD / 2, 3 * TOKENS_TOLD / 2)
    assert learned.bytes_per_token == 3.0


def test_first_prompts_that_are_quick_were_cached():
    learned = Learned(Settings(prefill_tokens_per_s=8000))
    for _ in range(200):
        learned.first_prompt(8000, 0.25)
    assert learned.found_at_first == pytest.approx(0.75, abs=0.01)
