"""Load is a count per place; cost is load for each unit of weight."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.fleet import Replica
from homing.core.placement.cost import in_flight
from homing.core.placement.load import Load


@pytest.mark.parametrize(("requests", "weight", "cost"), [(0, 1, 0.0), (3, 1, 3.0), (3, 2, 1.5), (1, 128, 1 / 128)])
def test_cost_is_requests_in_flight_for_each_unit_of_weight(requests: int, weight: int, cost: float):
    load = Load()
    for _ in range(requests):
        load.begin(("pool", "a"))
    load.begin(("other pool", "a"))
    assert in_flight("pool", Replica("a", "10.0.0.1:8000", weight), load) == cost


@given(st.lists(st.sampled_from(["a", "b", "c"])), st.randoms())
def test_load_counts_what_has_begun_and_not_ended(begun: list[str], random):
    load, expected = Load(), Counter(begun)
    for replica in begun:
        load.begin(("pool", replica))
    ended = random.sample(begun, random.randint(0, len(begun)))
    for replica in ended:
        load.end(("pool", replica))
    expected.subtract(ended)
    assert {replica: load.in_flight(("pool", replica)) for replica in "abc"} == {r: expected[r] for r in "abc"}
    assert load.snapshot() == {("pool", r): n for r, n in expected.items() if n}


def test_what_never_began_cannot_end():
    load = Load()
    load.end(("pool", "a"))
    load.begin(("pool", "a"))
    assert load.snapshot() == {("pool", "a"): 1}


def test_a_snapshot_stays_as_it_was():
    load = Load()
    load.begin(("pool", "a"))
    snapshot = load.snapshot()
    load.begin(("pool", "a"))
    assert snapshot == {("pool", "a"): 1}
