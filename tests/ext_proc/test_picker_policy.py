"""What a policy and a slow start make of a picker's decisions."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from picking import FLEET, POOL, TABLE, Picking

from homing.core.config import parse
from homing.core.fleet import Fleet, HealthChanged, State
from homing.core.placement.easing import Easing
from homing.core.policy import Policy, PoolPolicy, applied

FILE = "pools: {p: {served_name: served, replicas: [{id: gpu-0, address: '10.0.0.0:8000'}]}}\n"
OPEN = "x-gateway-destination-endpoint"


@pytest.fixture
def picking() -> Picking:
    picking = Picking()
    picking.picker.placer.scales.easing = Easing(Random(1).randrange)
    return picking


def new_sessions(picking: Picking, count: int = 300) -> dict[str, int]:
    """How many of the sessions that begin now each replica gets."""
    homes = {r.address.encode(): r.id for r in POOL.replicas}
    counts = dict.fromkeys(homes.values(), 0)
    for i in range(count):
        routed = picking.route(b"fresh%d" % i, given=False)
        counts[homes[dict(routed.set_headers)[OPEN].split(b",")[0]]] += 1
        routed.release()
    return counts


def test_a_mode_of_the_policy_holds_from_the_next_request_on_and_so_does_its_end(picking: Picking):
    picking.picker.configure(parse(FILE, "homing.yaml"))
    assert OPEN in dict(picking.route().set_headers)
    picking.picker.adopt(applied(Policy(bypass=True), FLEET))
    assert dict(picking.route().set_headers) == {}
    assert OPEN not in dict(picking.route(b"uuid", given=False).set_headers)
    picking.picker.adopt(FLEET)
    assert OPEN in dict(picking.route().set_headers)


def test_a_policy_cannot_make_more_of_a_pool_than_its_file_says(picking: Picking):
    picking.picker.configure(parse(FILE.replace("served,", "served, mode: 'off',"), "homing.yaml"))
    picking.picker.adopt(applied(Policy(pools={"p": PoolPolicy("full")}), FLEET))
    assert dict(picking.route().set_headers) == {}


def test_a_share_bounds_new_sessions_and_moves_nobody(picking: Picking):
    at_0 = next(b"s%d" % i for i in range(100) if TABLE.owner(b"/s%d" % i).id == "gpu-0")
    before = dict(picking.route(at_0).set_headers)[OPEN]
    picking.picker.adopt(applied(Policy(pools={"p": PoolPolicy(shares={"gpu-0": 0.0})}), FLEET))
    assert new_sessions(picking)["gpu-0"] == 0
    assert dict(picking.route(at_0).set_headers)[OPEN].split(b",")[0] == before.split(b",")[0]
    picking.picker.adopt(applied(Policy(pools={"p": PoolPolicy(shares={"gpu-0": 0.05})}), FLEET))
    assert 3 <= new_sessions(picking)["gpu-0"] <= 35


def test_a_replica_that_joins_gets_its_part_little_by_little(picking: Picking):
    joining = replace(POOL.replicas[2], state=State.JOINING, healthy=False)
    picking.picker.adopt(Fleet((replace(POOL, replicas=(*POOL.replicas[:2], joining)),)))
    new_sessions(picking, 100)
    picking.now = 50.0
    picking.picker.adopt(FLEET)
    first = new_sessions(picking, 100)["gpu-2"]
    picking.now = 80.0
    later = new_sessions(picking, 100)["gpu-2"]
    assert 1 <= first <= 20 < later


def test_one_that_comes_back_begins_slowly_too_and_a_whole_fleet_does_not(picking: Picking):
    easing = picking.picker.placer.scales.easing
    assert not easing.eases(limited=False)  # nobody of the first fleet
    down = FLEET.apply(HealthChanged("p", "gpu-1", False))
    picking.picker.adopt(down)
    picking.picker.adopt(FLEET)
    assert easing.share("p", POOL.replicas[1], 30.0, picking.now) == pytest.approx(0.1)
    assert easing.share("p", POOL.replicas[0], 30.0, picking.now) == 1.0
    picking.picker.adopt(down)
    assert not easing.eases(limited=False)
