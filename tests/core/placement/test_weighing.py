"""Weighing: who is looked at, what a home bears, when everybody has too much."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from homing.core.fleet import Pool, Replica, State
from homing.core.placement.asked import Asked
from homing.core.placement.load import Load, Vector
from homing.core.placement.pools import CompiledPool
from homing.core.placement.settings import Settings
from homing.core.placement.weighing import DOUBT, Scales


def pool(n: int, **first: object) -> CompiledPool:
    made = [Replica(f"gpu-{i}", f"10.0.{i // 250}.{i % 250}:80") for i in range(n)]
    made[0] = Replica("gpu-0", "10.0.0.0:80", **first)  # type: ignore[arg-type]
    return CompiledPool.of(Pool("p", "m", replicas=tuple(made)))


@pytest.fixture
def scales() -> Scales:
    return Scales(Load(), Random(1).randrange)


def names(scales: Scales, within: CompiledPool, asked: Asked) -> set[str]:
    return {w.there.replica.id for w in scales.weigh(within, asked, 0.0)}


def test_a_small_pool_is_weighed_whole(scales: Scales):
    assert len(names(scales, pool(8), Asked(1))) == 8


def test_of_a_large_pool_a_sample_with_home_owner_and_who_holds_the_prompt(scales: Scales):
    within = pool(1000)
    asked = Asked(1, home="gpu-7", owner="gpu-8", held={"gpu-9": 100})
    for _ in range(20):
        found = names(scales, within, asked)
        assert {"gpu-7", "gpu-8", "gpu-9"} <= found
        assert len(found) <= Settings().sample + 3


def test_samples_reach_everybody_alike(scales: Scales):
    seen = Counter(name for _ in range(1000) for name in names(scales, pool(100), Asked(1)))
    assert len(seen) == 100
    assert max(seen.values()) < 2 * min(seen.values())


def test_of_a_subset_or_an_adapter_only_who_fits_is_drawn(scales: Scales):
    within = pool(1000, adapters=("x",))
    assert names(scales, within, Asked(1, subset={within.members[5].address})) == {"gpu-5"}
    assert "gpu-0" in names(scales, pool(8, adapters=("x",)), Asked(1, adapter="x"))
    assert "gpu-0" not in names(scales, pool(8, adapters=("y",)), Asked(1, adapter="x"))


@pytest.mark.parametrize(
    ("waiting", "cached", "content"),
    [(0, 0, True), (4000, 0, True), (4001, 0, False), (4500, 1000, True), (4501, 1000, False)],
)
def test_a_home_is_content_while_less_waits_than_a_move_costs(
    scales: Scales, waiting: float, cached: float, content: bool
):
    within = pool(2)
    scales.load.begin(("p", "gpu-1"), waiting, 0.0)
    asked = Asked(2000, home="gpu-1", home_cached=cached)
    assert scales.content("p", asked, within.members[1], 0.0) is content


def test_what_siblings_have_waiting_counts(scales: Scales):
    scales.load.absorb("sibling", {("p", "gpu-1"): Vector(pending_tokens=9000.0)}, 0.0)
    there = {w.there.replica.id: w.there for w in scales.weigh(pool(2), Asked(1), 0.0)}
    assert (there["gpu-0"].waiting, there["gpu-1"].waiting) == (0.0, 9000.0)


def test_a_known_slow_replica_is_slow_by_more_than_the_doubt(scales: Scales):
    within = pool(4)
    for replica in within.members:
        for _ in range(100):
            ttft = 1.0 if replica.id == "gpu-0" else 0.5
            scales.first_token("p", replica, b"", 4000, ttft, 0.0, at_most=False)
    speeds = {w.there.replica.id: w.there.speed for w in scales.weigh(within, Asked(1), 0.0)}
    assert speeds["gpu-0"] == pytest.approx(0.5 * 8 / 7 * DOUBT, rel=0.05)
    assert {speeds[f"gpu-{i}"] for i in (1, 2, 3)} == {1.0}


def test_weight_is_speed_until_more_is_known(scales: Scales):
    speeds = {w.there.replica.id: w.there.speed for w in scales.weigh(pool(3, weight=3), Asked(1), 0.0)}
    assert speeds == {"gpu-0": 3.0, "gpu-1": 1.0, "gpu-2": 1.0}


@pytest.mark.parametrize(
    ("limit", "waiting", "expected"),
    [
        (0, (1e9, 1e9), None),
        (1000, (1001, 1000), None),
        (1000, (9000, 17_000), 1.0),
    ],
)
def test_all_have_too_much_only_beyond_the_limit(
    scales: Scales, limit: float, waiting: tuple[float, float], expected: float | None
):
    scales.configure({"p": Settings(reject_above_tokens=limit, prefill_tokens_per_s=8000)})
    for i, tokens in enumerate(waiting):
        scales.load.begin(("p", f"gpu-{i}"), tokens, 0.0)
    assert scales.overloaded(pool(2), 0.0) == expected


def test_who_drains_does_not_save_a_pool_from_overload(scales: Scales):
    scales.configure({"p": Settings(reject_above_tokens=1000)})
    scales.load.begin(("p", "gpu-1"), 9000, 0.0)
    assert scales.overloaded(pool(2, state=State.DRAINING), 0.0) == 1.0


def test_a_replica_that_is_forgotten_is_cold_but_its_streams_still_end(scales: Scales):
    scales.load.absorb("sibling", {("p", "gpu-1"): Vector(in_flight=2)}, 0.0)
    scales.load.begin(("p", "gpu-1"), 9000, 0.0)
    scales.load.forget(("p", "gpu-1"))
    meter = scales.load.meter(("p", "gpu-1"))
    assert (meter.in_flight, meter.waiting(0.0)) == (1, 0.0)
    scales.load.absorb("sibling", {}, 0.1)
    scales.load.end(("p", "gpu-1"))
    assert (meter.in_flight, meter.others_in_flight) == (0, 0)
