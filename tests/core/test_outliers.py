"""Who fails requests: counted over a window, and judged with care."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.fleet import Fleet, Pool, Replica, RequestsJudged
from homing.core.outliers import FIRST_S, FORGIVEN_S, HALF_S, LONGEST_S, Tally, Window, added, judged

A, B = ("p", "a"), ("p", "b")


def fleet(*names):
    return Fleet((Pool("p", "m", replicas=tuple(Replica(n, f"10.0.0.{i}:80") for i, n in enumerate(names, 1))),))


def seen(**by_replica):
    return {("p", name): Tally("p", name, *numbers) for name, numbers in by_replica.items()}


def test_a_window_counts_requests_failures_and_the_sessions_that_failed():
    window = Window()
    for i in range(6):
        window.ended(A, b"s%d" % (i % 2), 100.0, failed=i < 4 or i == 5)
    window.ended(B, b"s", 100.0, failed=False)
    assert window.tallies(100.0).replicas == (Tally("p", "a", 6, 5, 2, 1, 1), Tally("p", "b", 1, 0, 0))


def test_what_is_old_is_dropped():
    window = Window()
    window.ended(A, b"s", 100.0, failed=True)
    window.ended(A, b"s", 100.0 + HALF_S, failed=False)
    assert window.tallies(100.0 + HALF_S).replicas == (Tally("p", "a", 2, 1, 1),)
    assert window.tallies(100.0 + 2 * HALF_S).replicas == (Tally("p", "a", 1, 0, 0),)
    assert window.tallies(100.0 + 9 * HALF_S).replicas == ()


def test_the_failures_since_the_last_success_are_counted_over_both_halves():
    window = Window()
    for i in range(20):
        window.ended(A, b"well", 100.0, failed=False)
        if i > 16:
            window.ended(A, b"s%d" % i, 100.0 + i / 100, failed=True)
    window.ended(A, b"s19", 101.0, failed=True)
    assert window.tallies(101.0).replicas == (Tally("p", "a", 24, 4, 3, 2, 1),)
    window.ended(A, b"t", 100.0 + HALF_S, failed=True)
    assert window.tallies(100.0 + HALF_S).replicas == (Tally("p", "a", 25, 5, 4, 3, 2),)
    assert window.tallies(100.0 + 2 * HALF_S).replicas == (Tally("p", "a", 1, 1, 1, 1, 1),)
    window.ended(A, b"t", 100.0 + 2 * HALF_S, failed=False)
    assert window.tallies(100.0 + 2 * HALF_S).replicas == (Tally("p", "a", 2, 1, 1, 0, 0),)


def test_what_several_pickers_saw_is_added_up():
    assert added([Tally("p", "a", 3, 2, 1, 2, 1), Tally("p", "a", 4, 1, 1, 1, 1), Tally("p", "b", 1, 0, 0)]) == seen(
        a=(7, 3, 2, 3, 2), b=(1, 0, 0)
    )


@pytest.mark.parametrize(
    ("tallies", "bad"),
    [
        (seen(a=(10, 8, 4), b=(10, 0, 0)), {A}),
        (seen(a=(5, 5, 3), b=(1, 0, 0)), {A}),
        (seen(a=(4, 4, 4), b=(10, 0, 0)), set()),  # too few
        (seen(a=(10, 8, 2), b=(10, 0, 0)), set()),  # of two sessions only
        (seen(a=(100, 49, 9), b=(10, 0, 0)), set()),  # most go well
        (seen(a=(100, 5, 3, 5, 3), b=(10, 0, 0)), {A}),  # but not the last ones
        (seen(a=(100, 9, 9, 4, 4), b=(10, 0, 0)), set()),  # too few of these
        (seen(a=(100, 9, 3, 9, 2), b=(10, 0, 0)), set()),  # of two sessions only
        (seen(a=(100, 5, 5, 5, 5), b=(100, 5, 5, 0, 0)), set()),  # it fails everywhere
        (seen(a=(10, 8, 4), b=(10, 6, 4)), set()),  # it fails everywhere
        (seen(a=(10, 8, 4)), set()),  # nobody to be compared with
        ({}, set()),
    ],
)
def test_who_is_taken_from_new_sessions(tallies, bad):
    assert set(judged(fleet("a", "b", "c"), tallies, {}, 0.0)) == bad


def test_each_time_is_longer_and_after_a_while_it_is_a_first_time_again():
    bad, records, now, times = seen(a=(10, 8, 4), b=(10, 0, 0)), {}, 0.0, []
    for _ in range(7):
        records = judged(fleet("a", "b"), bad, records, now)
        assert judged(fleet("a", "b"), bad, records, records[A].until_s - 1) == records
        times.append(records[A].until_s - now)
        now = records[A].until_s
    assert times == [FIRST_S, 60.0, 120.0, 240.0, 480.0, LONGEST_S, LONGEST_S]
    later = now + FORGIVEN_S
    assert judged(fleet("a", "b"), {}, records, later - 1) == records
    assert judged(fleet("a", "b"), {}, records, later) == {}
    assert judged(fleet("b"), {}, records, now) == {}  # it has left


@given(
    st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 30)] * 5), min_size=n, max_size=n)),
    st.integers(1, 5),
)
def test_never_more_than_half_of_a_pool(numbers, rounds):
    names = "abcdef"[: len(numbers)]
    tallies = seen(**{n: (max(r, f), f, *more) for n, (r, f, *more) in zip(names, numbers, strict=True)})
    records = {}
    for step in range(rounds):
        records = judged(fleet(*names), tallies, records, 10.0 * step)
        assert 2 * sum(10.0 * step < r.until_s for r in records.values()) <= len(names)


def test_one_that_fails_is_in_the_hash_and_takes_no_new_sessions():
    replica = fleet("a").apply(RequestsJudged("p", "a", True)).pools[0].replicas[0]
    assert (replica.in_hash, replica.takes_new_sessions) == (True, False)
