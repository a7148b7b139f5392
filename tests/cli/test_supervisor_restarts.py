"""When a child is started again; a clock is a number here."""

from __future__ import annotations

import pytest

from homing.cli.restarts import Backoff, End, Exited, GiveUp, History, NotStarted, Restart, decide

BACKOFF = Backoff(first_s=0.2, most_s=5.0, steady_s=30.0)
KILLED = Exited(-9)


def run_of(ends: list[tuple[float, End]], *, starting: bool = False) -> list[float]:
    """The delays after children that lived for so many seconds each and ended so."""
    history, now_s, delays = History(), 1000.0, []
    for alive_s, end in ends:
        history = history.started(now_s)
        now_s += alive_s
        step = decide(BACKOFF, history, end, now_s=now_s, starting=starting, chance=0.0)
        assert isinstance(step, Restart)
        history = step.history
        now_s += step.delay_s
        delays.append(step.delay_s)
    return delays


def test_each_end_in_a_row_doubles_the_wait_up_to_the_most() -> None:
    assert run_of([(1.0, KILLED)] * 7) == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_child_that_lived_long_begins_again() -> None:
    assert run_of([(1.0, KILLED)] * 3 + [(30.0, KILLED), (29.9, KILLED)]) == [0.2, 0.4, 0.8, 0.2, 0.4]


def test_a_child_that_cannot_be_started_waits_longer_each_time() -> None:
    failure = NotStarted("cannot start: no space left on device")
    assert run_of([(0.0, failure), (100.0, failure)]) == [0.2, 0.4]


def test_many_ends_do_not_overflow() -> None:
    assert run_of([(0.0, KILLED)] * 5000)[-1] == 5.0


@pytest.mark.parametrize(("chance", "delay_s"), [(0.0, 0.2), (0.5, 0.18), (1.0, 0.16)])
def test_jitter_takes_off_up_to_a_fifth(chance: float, delay_s: float) -> None:
    assert BACKOFF.delay_s(1, chance) == pytest.approx(delay_s)


@pytest.mark.parametrize("status", [0, 1, 3, 127, -9, -15])
def test_any_end_is_followed_by_a_restart_while_starting(status: int) -> None:
    step = decide(BACKOFF, History(), Exited(status), now_s=1.0, starting=True, chance=0.0)
    assert step == Restart(0.2, History(failures=1))


def test_wrong_configuration_while_starting_ends_the_start() -> None:
    step = decide(BACKOFF, History(), Exited(2), now_s=1.0, starting=True, chance=0.0)
    assert step == GiveUp("wrong usage or configuration")


def test_wrong_configuration_later_is_tried_again() -> None:
    step = decide(BACKOFF, History(), Exited(2), now_s=1.0, starting=False, chance=0.0)
    assert step == Restart(0.2, History(failures=1))


@pytest.mark.parametrize(
    ("end", "words"),
    [(Exited(-9), "signal 9"), (Exited(1), "exit status 1"), (NotStarted("cannot start: x"), "cannot start: x")],
)
def test_an_end_is_told_in_words(end: End, words: str) -> None:
    assert str(end) == words
