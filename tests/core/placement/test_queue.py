"""A prefill queue as a fluid, and what corrects it. Speed 100 tokens per second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.placement.queue import REMEMBERED, Queue

SPEED = 100.0


@pytest.mark.parametrize(("now", "waiting"), [(0.0, 500.0), (2.0, 300.0), (5.0, 0.0), (9.0, 0.0)])
def test_tokens_drain_at_the_speed(now: float, waiting: float):
    queue = Queue()
    queue.add(500.0, 0.0, SPEED)
    assert queue.waiting(now, SPEED) == waiting


def test_an_idle_time_is_not_made_up_for():
    queue = Queue()
    queue.add(100.0, 0.0, SPEED)
    queue.add(100.0, 10.0, SPEED)
    assert queue.waiting(10.5, SPEED) == 50.0


def test_a_first_token_later_than_thought_shows_what_still_waits():
    queue = Queue()
    mark = queue.add(100.0, 0.0, SPEED)
    queue.add(300.0, 0.0, SPEED)
    assert queue.waiting(4.0, SPEED) == 0.0
    queue.first_token(mark, 3.0)
    assert queue.waiting(4.0, SPEED) == 200.0


def test_a_first_token_earlier_than_thought_shows_that_less_waits():
    queue = Queue()
    queue.add(500.0, 0.0, SPEED)
    mark = queue.add(500.0, 0.0, SPEED)
    queue.add(200.0, 1.0, SPEED)
    queue.first_token(mark, 2.0)
    assert queue.waiting(2.5, SPEED) == 150.0


def test_what_came_after_the_first_token_waited_through_idle_time_too():
    queue = Queue()
    mark = queue.add(100.0, 0.0, SPEED)
    queue.add(100.0, 10.0, SPEED)  # the replica had been idle for long
    queue.first_token(mark, 1.0)
    assert queue.waiting(10.5, SPEED) == 50.0


def test_older_news_than_what_is_known_changes_nothing():
    queue = Queue()
    first = queue.add(100.0, 0.0, SPEED)
    second = queue.add(100.0, 0.0, SPEED)
    queue.first_token(second, 1.0)
    queue.first_token(first, 0.9)
    assert queue.waiting(1.5, SPEED) == 0.0


def test_first_tokens_from_before_what_is_remembered_change_nothing():
    queue = Queue()
    mark = queue.add(1.0, 0.0, SPEED)
    for _ in range(REMEMBERED):
        queue.add(1.0, 5.0, SPEED)
    queue.first_token(mark, 4.0)
    assert queue.waiting(5.0, SPEED) == REMEMBERED


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1000)), min_size=1, max_size=40),
    st.integers(0, 39),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_a_first_token_counts_anew_what_came_since(
    arrivals: list[tuple[float, float]], which: int, ttft: float, later: float
):
    """Step by step, from the first token on."""
    queue, now = Queue(), 1.0
    known: list[tuple[float, float, float]] = []
    for pause, tokens in arrivals:
        now += pause
        known.append((now, tokens, queue.add(tokens, now, SPEED)))
    begun, _, mark = known[which % len(known)]
    at, end = begun + ttft, max(now, begun + ttft) + later
    served, time, came = mark, at, 0.0
    for arrival, tokens, _ in known:
        if arrival > at:
            served, time = min(came, served + SPEED * (arrival - time)), arrival
        came += tokens
    queue.first_token(mark, at)
    assert queue.waiting(end, SPEED) == pytest.approx(max(0.0, came - served - SPEED * (end - time)), abs=1e-6)


@pytest.mark.parametrize(("requests", "waiting"), [(0, 800), (1, 950), (2, 1000), (9, 1000)])
def test_no_more_is_pending_than_the_largest_of_those_that_the_engine_has(requests: int, waiting: float):
    queue = Queue()
    for tokens in (50.0, 500.0, 150.0, 300.0):
        queue.add(tokens, 0.0, SPEED)
    queue.at_most(requests, 0.0, SPEED)
    assert queue.waiting(0.0, SPEED) == waiting


def test_what_has_been_served_of_one_is_not_pending():
    queue = Queue()
    for _ in range(4):
        queue.add(500.0, 0.0, SPEED)
    queue.at_most(2, 4.0, SPEED)
    assert queue.waiting(4.0, SPEED) == 1600.0
    queue.at_most(0, 4.0, SPEED)
    assert queue.waiting(4.0, SPEED) == 1000.0


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1000), st.booleans()), max_size=40))
def test_it_never_holds_less_than_nothing_nor_more_than_came(steps: list[tuple[float, float, bool]]):
    queue, now, came, marks = Queue(), 0.0, 0.0, [(0.0, 0.0)]
    for pause, tokens, heard in steps:
        now += pause
        marks.append((queue.add(tokens, now, SPEED), now))
        came += tokens
        if heard:
            mark, at = marks[len(marks) // 2]
            queue.first_token(mark, at + 0.5)
        assert 0.0 <= queue.waiting(now, SPEED) <= came + 1e-6


def test_one_engine_serves_all_pickers_in_the_order_in_which_they_sent():
    queue = Queue()
    queue.add_others(200.0, 0.0, SPEED)
    queue.add(100.0, 0.0, SPEED)
    queue.add_others(100.0, 0.0, SPEED)
    times = (0.0, 2.0, 2.5, 3.0, 3.5, 4.0)
    assert [queue.waiting(now, SPEED) for now in times] == [400.0, 200.0, 150.0, 100.0, 50.0, 0.0]
    assert [queue.own_waiting(now, SPEED) for now in times] == [100.0, 100.0, 50.0, 0.0, 0.0, 0.0]


def test_of_what_is_no_more_remembered_the_share_of_all_is_ones_own():
    queue = Queue()
    queue.add(100.0, 0.0, SPEED)
    queue.add_others(300.0, 0.0, SPEED)
    for _ in range(REMEMBERED):
        queue.add(1.0, 0.0, SPEED)
    assert queue.own_waiting(0.0, SPEED) == REMEMBERED + 100.0


def test_a_queue_that_begins_anew_goes_on_counting_its_own():
    queue = Queue(500.0)
    assert (queue.own, queue.waiting(0.0, SPEED)) == (500.0, 0.0)
    queue.add(50.0, 0.0, SPEED)
    assert (queue.own, queue.own_waiting(0.0, SPEED)) == (550.0, 50.0)


def test_what_another_picker_learned_of_a_moment_counts_as_if_it_were_learned_here():
    queue = Queue()
    queue.add_others(100.0, 0.0, SPEED)
    queue.add(300.0, 0.0, SPEED)
    queue.waited(300.0, 3.0)
    assert queue.waiting(4.0, SPEED) == 200.0
    queue.waited(0.0, 2.0)  # older
    assert queue.waiting(4.0, SPEED) == 200.0


Sends = list[tuple[float, float, bool]]
SENDS = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1000), st.booleans()), min_size=1, max_size=REMEMBERED)


def sent(sends: Sends) -> tuple[Queue, Queue, list[float], list[float], float]:
    """The queues of two pickers of which each hears at once what the other sends; marks in the first, and times."""
    one, other, now = Queue(), Queue(), 1.0
    marks, times = [], []
    for pause, tokens, by_one in sends:
        now += pause
        (one.add if by_one else one.add_others)(tokens, now, SPEED)
        (other.add_others if by_one else other.add)(tokens, now, SPEED)
        marks.append(sum(tokens for _, tokens, _ in sends[: len(marks) + 1]))
        times.append(now)
    return one, other, marks, times, now


@given(SENDS, st.floats(0, 10))
def test_what_waits_is_what_each_has_waiting(sends: Sends, later: float):
    one, other, _, _, now = sent(sends)
    waiting = one.waiting(now + later, SPEED)
    assert other.waiting(now + later, SPEED) == waiting
    parts = one.own_waiting(now + later, SPEED), other.own_waiting(now + later, SPEED)
    assert sum(parts) == pytest.approx(waiting, abs=1e-6)
    assert min(parts) >= 0.0


@given(SENDS, st.integers(0, REMEMBERED - 1), st.floats(0, 10), st.floats(0, 10))
def test_a_first_token_corrects_both_alike(sends: Sends, which: int, ttft: float, later: float):
    one, other, marks, times, now = sent(sends)
    at = times[which % len(times)] + ttft
    waited = one.first_token(marks[which % len(marks)], at)
    assert waited is not None
    other.waited(waited, at)
    end = max(now, at) + later
    assert other.waiting(end, SPEED) == pytest.approx(one.waiting(end, SPEED), abs=1e-6)
