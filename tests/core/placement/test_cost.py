"""Each term of the cost, as a table; and how they add up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.core.fleet import Replica
from homing.core.placement.asked import Asked, There
from homing.core.placement.cost import (
    TERMS,
    crowding,
    decoding,
    eviction,
    itemised,
    leaving,
    owner,
    prefill,
    speed,
    spread,
    total,
)
from homing.core.placement.cost import waiting as waiting_term
from homing.core.placement.settings import Settings

A, B = Replica("a", "10.0.0.1:8000"), Replica("b", "10.0.0.2:8000")


@pytest.mark.parametrize("tokens", [0.0, 12_000.0])
def test_what_waits_costs_what_it_is(tokens: float):
    assert waiting_term.tokens(Asked(1000), There(A, waiting=tokens)) == tokens


@pytest.mark.parametrize(
    ("cached", "crowd", "expected"),
    [(0, 0, 1000), (900, 0, 100), (0, 2, 1600), (1000, 5, 0)],
)
def test_prefill_is_what_is_not_cached_and_more_where_others_wait(cached: float, crowd: float, expected: float):
    assert prefill.tokens(Asked(1000, crowd=crowd), There(A, cached=cached)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("working_set", "tokens", "expected"),
    [
        (0, 1000, 0),
        (89_000, 1000, 0),  # just what is usable of 100,000
        (179_000, 1000, 4 * 1000 * 0.5),  # twice that: half will not fit, for four further turns
        (0, 180_000, 4 * 180_000 * 0.5),  # a context larger than the cache
    ],
)
def test_what_will_not_fit_costs_with_every_further_turn(working_set: float, tokens: float, expected: float):
    asked = Asked(tokens, Settings(eviction_factor=1.0), further_turns=4)
    assert eviction.tokens(asked, There(A, working_set=working_set, capacity=100_000)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("begins", "sessions", "fewest", "pace", "expected"),
    [
        (True, 5, 3, 1.0, 2 * 0.25 * 4 * 1000),
        (True, 3, 3, 1.0, 0),
        (True, 6, 3, 2.0, 0),  # twice as fast, twice as many
        (False, 5, 3, 1.0, 0),
    ],
)
def test_a_new_session_pays_for_those_that_are_there(
    begins: bool, sessions: float, fewest: float, pace: float, expected: float
):
    asked = Asked(
        1, Settings(spread_factor=0.25), begins=begins, fewest_sessions=fewest, further_turns=4, later_uncached=1000
    )
    assert spread.tokens(asked, There(A, sessions=sessions, speed=pace)) == pytest.approx(expected)


@pytest.mark.parametrize(("in_flight", "expected"), [(0, 0), (3, 60)])
def test_requests_in_flight_cost_a_little(in_flight: int, expected: float):
    assert crowding.tokens(Asked(1), There(A, in_flight=in_flight)) == expected


@pytest.mark.parametrize(("context", "expected"), [(0, 0), (50_000, 1000)])
def test_contexts_that_are_decoded_cost_by_their_length(context: float, expected: float):
    assert decoding.tokens(Asked(1), There(A, context=context)) == expected


@pytest.mark.parametrize(
    ("home", "cached", "crowd", "working_set", "expected"),
    [
        (None, 0, 0, 0, 0),  # no home to leave
        ("a", 5000, 3, 0, 0),  # this is home
        ("b", 0, 0, 0, 4000),
        ("b", 2000, 0, 87_500, 4000 + 0.5 * 2000),  # just what is usable of 100,000
        ("b", 2000, 0, 87_501, 4000 + 3 * 2000),  # others would have to make room
        ("b", 2000, 1, 87_501, 4000 + 3 * 2000 * 3),
    ],
)
def test_leaving_home_costs_what_is_thrown_away_and_more_where_it_evicts_others(
    home: str | None, cached: float, crowd: float, working_set: float, expected: float
):
    there = There(A, working_set=working_set, capacity=100_000)
    assert leaving.tokens(Asked(2500, home=home, home_cached=cached, crowd=crowd), there) == expected


@pytest.mark.parametrize(("hash_owner", "expected"), [(None, 0), ("a", 0), ("b", 1000)])
def test_being_elsewhere_than_the_hash_says_costs_the_preference(hash_owner: str | None, expected: float):
    assert owner.tokens(Asked(1, owner=hash_owner), There(A)) == expected


@pytest.mark.parametrize(("work", "pace", "expected"), [(1000, 1.0, 0), (1000, 0.5, 1000), (1000, 2.0, -500)])
def test_a_slow_replica_takes_longer_for_the_same(work: float, pace: float, expected: float):
    assert speed.tokens(work, There(A, speed=pace)) == expected


def test_the_cost_is_the_sum_of_its_terms_and_a_receipt_names_each():
    asked = Asked(5000, home="b", home_cached=4000, owner="b", begins=True, crowd=1.5, fewest_sessions=1)
    there = There(A, waiting=700, in_flight=2, sessions=4, working_set=500_000, cached=300, speed=0.8, context=900)
    items = itemised(asked, there)
    assert tuple(items) == TERMS
    assert all(items.values())
    assert total(asked, there) == pytest.approx(sum(items.values()))


def test_every_constant_of_the_terms_can_be_set():
    off = Settings(hash_preference_tokens=0, leave_tokens=0, leave_factor=0, roomy_leave_factor=0, delay_factor=0,
                   eviction_factor=0, spread_factor=0, in_flight_tokens=0, context_factor=0)  # fmt: skip
    asked = Asked(5000, off, home="b", home_cached=4000, owner="b", begins=True, crowd=1.5)
    there = There(A, waiting=700, in_flight=2, sessions=4, working_set=500_000, cached=300)
    assert total(asked, there) == 700 + 4700
    assert total(replace(asked, settings=Settings()), there) > 700 + 4700
    assert total(asked, replace(there, replica=B)) == 700 + 4700
