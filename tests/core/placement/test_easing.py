"""Who comes slowly, and who gets a share only."""

from random import Random

import pytest

from homing.core.fleet import Replica
from homing.core.placement.asked import There
from homing.core.placement.easing import FIRST, Easing

A, B, C = (Replica(name, f"10.0.0.{i}:80") for i, name in enumerate("abc", 1))
SLOW_S = 30.0


def able(*replicas):
    return [There(r) for r in replicas]


def chosen(easing, candidates, now, rounds=4000):
    """How often each was let in."""
    counts = dict.fromkeys((t.replica.id for t in candidates), 0)
    for _ in range(rounds):
        for there in easing.let_in("p", candidates, SLOW_S, now):
            counts[there.replica.id] += 1
    return {name: count / rounds for name, count in counts.items()}


@pytest.mark.parametrize(("after_s", "share"), [(0.0, FIRST), (15.0, 0.55), (29.99, 0.9997), (30.0, 1.0), (1e6, 1.0)])
def test_who_came_is_let_in_more_and_more(after_s, share):
    easing = Easing(Random(1).randrange)
    easing.came(("p", "c"), 100.0)
    assert easing.share("p", C, SLOW_S, 100.0 + after_s) == pytest.approx(share, abs=1e-3)
    assert easing.share("p", A, SLOW_S, 100.0 + after_s) == 1.0


def test_of_the_sessions_that_begin_it_is_a_candidate_for_its_share():
    easing = Easing(Random(1).randrange)
    easing.came(("p", "c"), 100.0)
    let_in = chosen(easing, able(A, B, C), 100.0)
    assert (let_in["a"], let_in["b"]) == (1.0, 1.0)
    assert let_in["c"] == pytest.approx(FIRST, abs=0.02)


def test_where_all_have_come_somebody_takes_the_session():
    easing = Easing(Random(1).randrange)
    for name in "abc":
        easing.came(("p", name), 100.0)
    for _ in range(100):
        assert easing.let_in("p", able(A, B, C), SLOW_S, 100.0)


def test_a_share_of_the_operators_holds_for_ever_and_the_lesser_counts():
    easing = Easing(Random(1).randrange)
    canary = Replica("d", "10.0.0.4:80", share=0.3)
    assert easing.share("p", canary, SLOW_S, 1e9) == 0.3
    easing.came(("p", "d"), 0.0)
    assert easing.share("p", canary, SLOW_S, 0.0) == FIRST
    assert chosen(easing, able(A, canary), 1e9)["d"] == pytest.approx(0.3, abs=0.03)


def test_there_is_nothing_to_do_when_all_have_been_there_for_long_or_left():
    easing = Easing(Random(1).randrange)
    assert not easing.eases(limited=False)
    assert easing.eases(limited=True)
    easing.came(("p", "c"), 0.0)
    easing.came(("p", "b"), 0.0)
    assert easing.eases(limited=False)
    easing.gone(("p", "b"))
    easing.share("p", C, SLOW_S, SLOW_S)
    assert not easing.eases(limited=False)


def test_without_slow_start_it_comes_at_once():
    easing = Easing(Random(1).randrange)
    easing.came(("p", "c"), 5.0)
    assert easing.share("p", C, 0.0, 5.0) == 1.0
