"""The kill switch while it cannot be kept: one word of it for each control service, and the last one counts."""

import itertools

import pytest

from homing.control.membership import Membership
from homing.control.policies import Content, Policies
from homing.control.state import StateError
from homing.core.config import parse
from homing.core.policy import Policy, PoolPolicy, within

FILE = "pools: {p: {replicas: [{id: a, address: '10.0.0.1:80'}]}, q: {replicas: [{id: b, address: '10.0.0.2:80'}]}}"


class Shared:
    """A store of several control services, which is away at times."""

    def __init__(self):
        self.away = False
        self.policies = {}

    async def put_policy(self, policy):
        if self.away:
            raise StateError("away")
        return self.policies.setdefault(policy.version, policy) is policy


@pytest.fixture
def shared():
    return Shared()


@pytest.fixture
def clock():
    ticks = itertools.count(1)
    return lambda: float(next(ticks))


@pytest.fixture
def two(shared, clock):
    """Control services with one store."""
    return [Policies(Membership(parse(FILE, "homing.yaml")), shared, clock) for _ in range(2)]


def modes(policies):
    return [pool.mode for pool in policies._membership.view.fleet.pools]


async def settle(shared, order):
    """Each keeps what it could not, and then all read what is there, until nothing changes."""
    for _ in range(3):
        for policies in order:
            await policies.catch_up()
            for each in order:
                each.restore(shared.policies.values())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_of_two_words_the_last_one_counts_whoever_comes_first(shared, two, order):
    one, other = two
    await one.put(Content(False, {"p": PoolPolicy("route")}), "first")
    other.restore(shared.policies.values())
    shared.away = True
    await one.put(Content(True, one.now.pools), "early")
    await other.put(Content(True, other.now.pools), "late")
    await other.put(Content(False, other.now.pools), "latest")
    assert (modes(one), modes(other)) == (["off", "off"], ["route", None])
    shared.away = False
    await settle(shared, [two[i] for i in order])
    assert [(p.now.who, p.now.bypass, p.is_kept, modes(p)) for p in two] == [
        ("latest", False, True, ["route", None])
    ] * 2


async def test_what_somebody_else_says_later_takes_it_back(shared, two):
    one, other = two
    shared.away = True
    await one.put(Content(True, {}), "early")
    shared.away = False
    await other.put(Content(False, {"p": PoolPolicy("observe")}), "late")
    one.restore(shared.policies.values())
    assert (one.now.who, one.is_kept, modes(one)) == ("late", True, ["observe", None])


async def test_a_store_that_has_forgotten_everything_does_not_end_it(shared, two):
    one, _ = two
    await one.put(Content(False, {"p": PoolPolicy("route")}), "first")
    shared.away = True
    await one.put(Content(True, one.now.pools), "who")
    shared.away, shared.policies = False, {}
    one.restore(())
    assert modes(one) == ["off", "off"]
    await one.catch_up()
    assert [(p.version, p.bypass) for p in shared.policies.values()] == [(1, True)]


async def test_one_that_begins_without_the_store_knows_that_it_was_bypassed_and_can_end_that(shared, two):
    one, other = two
    await one.put(Content(True, {"q": PoolPolicy(shares={"b": 0.5})}), "who")
    told = one._membership.view.fleet
    other._membership.go_on(told)
    other.go_on(within(told), at_s=50.0)
    assert (other.now.bypass, other.now.of("q").shares, other.is_kept) == (True, {"b": 0.5}, False)
    shared.away = True
    await other.put(Content(False, other.now.pools), "operator")
    assert modes(other) == [None, None]


async def test_the_store_is_believed_where_it_is_newer_than_what_was_told_last(shared, two):
    one, _ = two
    one.go_on(Policy(bypass=True), at_s=50.0)
    one.restore([Policy(3, 60.0, "later", False)])
    assert (one.now.who, one.is_kept) == ("later", True)
    one.go_on(Policy(bypass=True), at_s=70.0)
    one.restore([Policy(3, 60.0, "earlier", False)])
    assert (one.now.bypass, one.is_kept) == (True, False)
    one.restore([Policy(3, 60.0, "the same", True)])
    assert (one.now.who, one.is_kept) == ("the same", True)
