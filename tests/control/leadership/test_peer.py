"""Control services in one process, on a real Redis, round by round."""

from __future__ import annotations

import asyncio

import pytest

from homing.control.drains import Drain
from homing.control.leadership import lease as lease_module
from homing.control.leadership.peer import Knowledge, Peer
from homing.control.leadership.standing import ALONE_AFTER_S, TRUSTED_S, Role
from homing.control.membership import CONTROL, Membership
from homing.control.state import Saved
from homing.core.config import parse
from homing.core.fleet import HealthChanged

FILE = "pools: {p: {replicas: [{id: a, address: '10.0.0.1:80'}, {id: b, address: '10.0.0.2:80'}]}}"
KEY = "homing:test:control:"
DRAIN = Drain("p", "a", 1.0, 61.0)


class Service:
    """The parts of a control service that a peer knows, on a clock of the test's."""

    def __init__(self, name, lease, state):
        self.now, self.settled, self.saved = 100.0, True, Saved()
        self.membership = Membership(parse(FILE, "homing.yaml"), ("api", CONTROL))
        knowledge = Knowledge(self.take_over, lambda: self.saved, lambda: "v", lambda: self.settled)
        self.peer = Peer(name, lease, state, self.membership, knowledge, lambda: self.now, interval_s=0.01)
        self.membership.role = lambda: self.peer.role

    def take_over(self, saved):
        self.saved = saved

    @property
    def healthy(self):
        return {r.id: r.healthy for pool in self.membership.view.fleet.pools for r in pool.replicas}


@pytest.fixture(autouse=True)
def leases_last(monkeypatch):
    """They end when the test says so, however slow the machine is."""
    monkeypatch.setattr(lease_module, "LEASE_S", 600.0)


@pytest.fixture
def make(leases, states):
    return lambda name: Service(name, leases(), states())


@pytest.fixture
async def two(make):
    """The first leads, and both serve what it says."""
    a, b = make("a"), make("b")
    await a.peer.begin(lambda: None)
    a.membership.apply(HealthChanged("p", "a", True), HealthChanged("p", "b", True))
    await a.peer.step()
    await b.peer.begin(lambda: None)
    return a, b


def lease_ends(redis):
    redis.command("DEL", KEY + "lease")


async def test_the_second_serves_what_the_first_decides(two):
    a, b = two
    assert (a.peer.role, b.peer.role) == (Role.LEADING, Role.FOLLOWING)
    assert b.membership.view.fleet == a.membership.view.fleet
    a.membership.apply(HealthChanged("p", "b", False))
    await a.peer.step()
    await b.peer.step()
    assert b.healthy == {"a": True, "b": False}
    assert not b.membership.apply(HealthChanged("p", "a", False))
    assert [(m.name, m.role) for m in b.peer.members] == [("a", Role.LEADING), ("b", Role.FOLLOWING)]


async def test_who_starts_waits_for_the_leaders_first_word(make):
    a, b = make("a"), make("b")
    a.settled = False
    await a.peer.begin(lambda: None)
    await a.peer.step()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(b.peer.begin(lambda: None), 0.2)
    assert b.healthy == {}
    a.settled = True
    await a.peer.step()
    await b.peer.begin(lambda: None)
    assert b.membership.view.fleet == a.membership.view.fleet


async def test_when_the_leader_is_gone_the_other_takes_over_as_it_is(redis, two):
    a, b = two
    served, serial = b.membership.view.fleet, b.membership.views.serial
    lease_ends(redis)
    await b.peer.step()
    assert b.peer.role is Role.LEADING
    assert b.membership.view.fleet == served  # nobody is probed again from the beginning
    assert b.membership.views.serial > serial  # but whoever probes is told that it is its turn
    assert b.membership.apply(HealthChanged("p", "a", False))
    await b.peer.step()
    assert [(m.name, m.role) for m in b.peer.members] == [("a", Role.FOLLOWING), ("b", Role.LEADING)]
    await a.peer.step()
    assert (a.peer.role, a.healthy) == (Role.FOLLOWING, {"a": False, "b": True})


async def test_a_leader_that_was_frozen_says_nothing_before_it_has_asked(redis, two):
    a, b = two
    a.now += TRUSTED_S  # frozen, and awake again
    assert not a.membership.apply(HealthChanged("p", "a", False))
    lease_ends(redis)
    await b.peer.step()
    await a.peer.step()
    assert a.peer.role is Role.FOLLOWING
    assert a.healthy == {"a": True, "b": True}


async def test_a_leader_that_ends_hands_over_at_once(two):
    a, b = two
    await a.peer.leave()
    await b.peer.step()
    assert b.peer.role is Role.LEADING


async def test_without_the_store_each_keeps_its_fleet_and_then_goes_on_carefully(redis, two):
    redis.kill()
    for service in two:
        await service.peer.step()
        service.now += TRUSTED_S
        assert service.peer.role is Role.FOLLOWING
        assert not service.membership.apply(HealthChanged("p", "a", False))
        service.now += ALONE_AFTER_S
        await service.peer.step()
        assert service.peer.role is Role.ALONE
        assert service.peer.trouble
        assert service.healthy == {"a": True, "b": True}
        assert service.membership.apply(HealthChanged("p", "a", False))
        assert not service.membership.apply(HealthChanged("p", "b", False))  # more than half of the pool
        assert service.healthy == {"a": False, "b": True}
    redis.start()
    for service in (*two, *two):
        await service.peer.step()
    assert [s.peer.role for s in two] == [Role.LEADING, Role.FOLLOWING]
    assert [s.peer.trouble for s in two] == ["", ""]
    assert two[0].membership.view.fleet == two[1].membership.view.fleet


async def test_what_one_writes_is_taken_over_by_the_other(two, states):
    await states().put_drain(DRAIN)
    for service in two:
        await service.peer.step()
        assert service.saved.drains == (DRAIN,)


async def test_an_emptied_store_is_filled_again_by_whoever_leads(redis, two):
    a, b = two
    a.saved = b.saved = Saved(drains=(DRAIN,))
    redis.command("FLUSHALL")
    await b.peer.step()
    await a.peer.step()
    await a.peer.step()
    assert [s.peer.role for s in two] == [Role.FOLLOWING, Role.LEADING]
    assert a.saved.drains == b.saved.drains == (DRAIN,)
    await b.peer.step()
    await a.peer.step()
    assert a.membership.view.fleet == b.membership.view.fleet
    assert a.healthy == {"a": True, "b": True}


async def test_what_only_a_follower_knew_is_not_lost_when_the_leader_of_an_emptied_store_knows_less(redis, two, make):
    a, b = two
    a.saved = b.saved = Saved(drains=(DRAIN,))
    fresh = make("c")
    redis.command("FLUSHALL")
    for service in (fresh, fresh, a, fresh, b):
        await service.peer.step()
    assert fresh.peer.role is Role.LEADING
    assert a.saved.drains == b.saved.drains == fresh.saved.drains == (DRAIN,)


async def test_beginning_without_the_store_is_with_the_last_good_fleet(redis, make):
    redis.kill()
    service = make("a")
    last = parse(FILE, "homing.yaml").fleet().apply(HealthChanged("p", "a", True))
    clock = service.peer._clock

    def later():
        service.now += 1.0
        return clock()

    service.peer._clock = later
    await service.peer.begin(lambda: last)
    assert service.peer.role is Role.ALONE
    assert service.healthy == {"a": True, "b": False}


async def test_another_file_here_does_not_change_what_is_served(two):
    a, b = two
    b.membership.configure(parse(FILE.replace("10.0.0.1", "10.0.0.9"), "homing.yaml"))
    await b.peer.step()
    await a.peer.step()
    assert b.membership.view.fleet == a.membership.view.fleet
    assert len({m.file for m in a.peer.members}) == 2
