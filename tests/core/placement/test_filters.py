"""Who may take a request, as tables."""

from __future__ import annotations

import pytest

from homing.core.fleet import Replica, State
from homing.core.placement.asked import Asked, There
from homing.core.placement.filters import adapter, capacity, drain, health, newcomers, subset
from homing.core.placement.settings import Settings

ASKED = Asked(1)


def there(
    name: str = "a",
    state: State = State.READY,
    *,
    healthy: bool = True,
    in_flight: int = 0,
    adapters: tuple[str, ...] = (),
) -> There:
    replica = Replica(name, f"{name}:8000", state=state, healthy=healthy, adapters=adapters)
    return There(replica, in_flight=in_flight)


@pytest.mark.parametrize(
    ("state", "healthy", "serves", "takes_new"),
    [
        (State.READY, True, True, True),
        (State.DRAINING, True, True, False),
        (State.JOINING, True, False, False),
        (State.READY, False, False, False),
        (State.DRAINING, False, False, False),
    ],
)
def test_health_and_drain(state: State, healthy: bool, serves: bool, takes_new: bool):
    one = there(state=state, healthy=healthy)
    assert health.allows(ASKED, one) is serves
    assert drain.allows(ASKED, one) is takes_new


@pytest.mark.parametrize(
    ("wanted", "loaded", "allowed"),
    [(None, (), True), (None, ("x",), True), ("x", (), True), ("x", ("y", "x"), True), ("x", ("y",), False)],
)
def test_an_adapter_is_served_where_it_is_loaded(wanted: str | None, loaded: tuple[str, ...], allowed: bool):
    assert adapter.allows(Asked(1, adapter=wanted), there(adapters=loaded)) is allowed


@pytest.mark.parametrize(
    ("only", "allowed"), [(None, True), ({"a:8000", "b:8000"}, True), ({"b:8000"}, False), (set(), False)]
)
def test_a_subset_hint_names_the_only_addresses(only: set[str] | None, allowed: bool):
    assert subset.allows(Asked(1, subset=only), there()) is allowed


@pytest.mark.parametrize(("most", "in_flight", "allowed"), [(0, 10_000, True), (4, 3, True), (4, 4, False)])
def test_a_full_replica_takes_no_new_session(most: int, in_flight: int, allowed: bool):
    assert capacity.allows(Asked(1, Settings(max_in_flight=most)), there(in_flight=in_flight)) is allowed


def names(asked: Asked, *candidates: There) -> list[str]:
    return [t.replica.id for t in newcomers(asked, candidates)]


def test_where_nobody_takes_new_sessions_whoever_can_serve_does():
    draining, dead = there("a", State.DRAINING), there("b", healthy=False)
    assert names(ASKED, draining, dead, there("c")) == ["c"]
    assert names(ASKED, draining, dead) == ["a"]
    assert names(ASKED, dead) == []


def test_a_must_is_never_waived():
    without = there("a", adapters=("y",))
    assert names(Asked(1, adapter="x"), without) == []
