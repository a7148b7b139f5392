"""The bootstrap: what is certain and what is noise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.core.verify.spread import median, quantile, ratio
from homing.core.verify.words import words

VALUES = st.lists(st.floats(0.001, 10), min_size=1, max_size=30)


def noisy(count: int, factor: float = 1.0) -> list[tuple[list[float], list[float]]]:
    """Conversations whose times vary by words drawn, the same in every run of the test; on average `factor` times."""

    def values(conversation: int) -> list[float]:
        return [1.0 + sum(map(ord, words(1, 3, conversation, turn))) % 50 / 100 for turn in range(4)]

    return [(values(i), [factor * value for value in values((i + 1) % count)]) for i in range(count)]


def test_the_ratio_is_of_the_means_of_all_turns():
    told = ratio([([1.0, 3.0], [0.5, 0.5]), ([8.0], [0.5, 0.5])])
    assert (told.scattered, told.affinity, told.value) == (4.0, 0.5, 0.125)
    assert told.conversations == 2


def test_pairs_without_a_value_in_both_runs_are_left_out():
    assert ratio([([1.0], []), ([], [1.0])]) is None
    assert ratio([([1.0], []), ([2.0], [1.0])]).conversations == 1


def test_a_difference_within_the_noise_neither_falls_nor_rises():
    told = ratio(noisy(12))
    assert told.low < 1.0 < told.high
    assert (told.falls, told.rises) == (False, False)


def test_a_clear_difference_falls_or_rises():
    assert ratio(noisy(12, 0.5)).falls
    assert ratio(noisy(12, 2.0)).rises


def test_of_few_conversations_nothing_is_certain():
    told = ratio(noisy(4, 0.1))
    assert (told.certain, told.falls) == (False, False)


def test_the_same_measurement_has_the_same_interval():
    assert ratio(noisy(6)) == ratio(noisy(6))


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)])
def test_quantiles_lie_between_neighbours(share, value):
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(value)


@given(VALUES)
def test_a_median_has_as_many_above_as_below(values):
    middle = median(values)
    assert min(values) <= middle <= max(values)
    assert abs(sum(v < middle for v in values) - sum(v > middle for v in values)) <= sum(v == middle for v in values)


@settings(max_examples=20)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4))
def test_an_interval_is_in_order_and_within_what_was_measured(pairs):
    told = ratio(pairs)
    assert told.low <= told.high
    assert told.high <= max(max(a) for _, a in pairs) / min(min(s) for s, _ in pairs) * (1 + 1e-9)
