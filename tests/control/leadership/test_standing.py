"""Who may decide: the rules alone, and several control services on one store, with everything against them."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.control.leadership.standing import ALONE_AFTER_S, LEASE_S, TRUSTED_S, Role, Standing, permitted
from homing.core.fleet import Fleet, HealthChanged, Pool, Replica, TemplateProbed

FLEET = Fleet((Pool("p", "m", replicas=tuple(Replica(r, f"10.0.0.{i}:80") for i, r in enumerate("abcd", 1))),))


def down(*ids, fleet=FLEET):
    for replica in ids:
        fleet = fleet.apply(HealthChanged("p", replica, False))
    return fleet


def test_a_lease_is_trusted_for_less_time_than_the_store_keeps_it():
    standing = Standing(0.0).heard(10.0, token=1)
    assert standing.role(10.0 + TRUSTED_S - 0.01) is Role.LEADING
    assert standing.role(10.0 + TRUSTED_S) is Role.FOLLOWING
    assert TRUSTED_S < LEASE_S < ALONE_AFTER_S


def test_who_asks_in_vain_for_long_is_alone_and_who_was_frozen_is_not():
    standing = Standing(0.0).heard(10.0, token=0)
    assert standing.role(1000.0) is Role.FOLLOWING
    assert standing.missed(10.0 + ALONE_AFTER_S - 0.1).role(1000.0) is Role.FOLLOWING
    alone = standing.missed(10.0 + ALONE_AFTER_S)
    assert alone.role(1000.0) is Role.ALONE
    assert alone.heard(1001.0, token=0).role(1001.0) is Role.FOLLOWING


@pytest.mark.parametrize(
    ("role", "event", "allowed"),
    [
        (Role.LEADING, HealthChanged("p", "a", False), True),
        (Role.FOLLOWING, HealthChanged("p", "a", True), False),
        (Role.FOLLOWING, TemplateProbed("p", None), False),
        (Role.ALONE, TemplateProbed("p", None), True),
        (Role.ALONE, HealthChanged("p", "a", True), True),
        (Role.ALONE, HealthChanged("p", "a", False), True),
        (Role.ALONE, HealthChanged("nowhere", "a", False), True),
    ],
)
def test_what_is_for_whom_to_say(role, event, allowed):
    assert permitted(role, FLEET, event) is allowed


def test_alone_half_of_a_pool_stays_whatever_probes_say():
    assert permitted(Role.ALONE, down("a"), HealthChanged("p", "b", False))
    assert not permitted(Role.ALONE, down("a", "b"), HealthChanged("p", "c", False))
    assert permitted(Role.ALONE, down("a", "b"), HealthChanged("p", "a", False))


@dataclass
class Store:
    """A lease with an end, as Redis keeps it."""

    owner: str = ""
    token: int = 0
    until_s: float = 0.0
    terms: int = 0
    there: bool = True

    def asked(self, name, now_s):
        """The token that `name` has after a round; None when there was no answer."""
        if not self.there:
            return None
        if now_s >= self.until_s:
            self.terms += 1
            self.owner, self.token = name, self.terms
        if self.owner == name:
            self.until_s = now_s + LEASE_S
            return self.token
        return 0


@dataclass
class Service:
    name: str
    standing: Standing = field(default_factory=lambda: Standing(0.0))
    frozen: bool = False


STEP_S = 0.25
ACTIONS = st.lists(st.sampled_from(["", "", "", "", "freeze", "thaw", "away", "back"]), min_size=1, max_size=120)


@given(ACTIONS, st.lists(st.integers(0, 2), min_size=120, max_size=120))
def test_no_two_lead_at_once_whatever_freezes_or_goes_away(actions, whom):
    store, services, now = Store(), [Service(n) for n in "abc"], 0.0
    for action, who in zip(actions, whom, strict=False):
        chosen = services[who]
        chosen.frozen = {"freeze": True, "thaw": False}.get(action, chosen.frozen)
        store.there = {"away": False, "back": True}.get(action, store.there)
        for service in services:
            if not service.frozen:
                token = store.asked(service.name, now)
                standing = service.standing
                service.standing = standing.missed(now) if token is None else standing.heard(now, token)
        leading = [s.name for s in services if s.standing.role(now) is Role.LEADING]
        assert len(leading) <= 1
        now += STEP_S


@given(st.integers(0, 2))
def test_a_leader_that_dies_is_replaced_within_the_life_of_its_lease(first):
    store, now = Store(), 0.0
    names = ["abc"[(first + i) % 3] for i in range(3)]
    standings = {name: Standing(0.0) for name in names}
    dead_s = 10.0
    while now < dead_s + LEASE_S + 2 * STEP_S:
        for name in names if now < dead_s else names[1:]:
            standings[name] = standings[name].heard(now, store.asked(name, now))
        now += STEP_S
    assert [name for name in names if standings[name].role(now - STEP_S) is Role.LEADING] == [names[1]]
