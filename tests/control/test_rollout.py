"""Who is told what, in which order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from homing.control.rollout import TellEnvoys, TellPickers, plan, reachable
from homing.core.fleet import Fleet, Pool, Replica, State

A = Replica("a", "10.0.0.1:80")
B = Replica("b", "10.0.0.2:80")
C = Replica("c", "10.0.0.3:80")


def fleet(*replicas, pool="p", **changes):
    return Fleet((Pool(pool, pool, replicas=replicas, **changes),))


def from_old(old, new):
    return plan(old, old, new)


def test_nothing_new_is_told_to_nobody():
    assert from_old(fleet(A, B), fleet(A, B)) == ()


def test_another_configuration_of_the_same_fleet_reaches_the_envoys():
    assert plan(fleet(A), fleet(A), fleet(A), reconfigured=True) == (TellEnvoys(fleet(A), False),)


def test_at_the_start_envoys_hear_first():
    assert plan(Fleet(), Fleet(), fleet(A)) == (TellEnvoys(fleet(A), True), TellPickers(fleet(A), False))


def test_a_joining_replica_reaches_the_pickers_after_every_envoy():
    assert from_old(fleet(A), fleet(A, B)) == (TellEnvoys(fleet(A, B), True), TellPickers(fleet(A, B), False))


def test_a_leaving_replica_leaves_the_pickers_first():
    assert from_old(fleet(A, B), fleet(A)) == (TellPickers(fleet(A), True), TellEnvoys(fleet(A), False))


def test_one_leaves_and_one_joins_through_both_together():
    assert from_old(fleet(A, B), fleet(A, C)) == (
        TellPickers(fleet(A), True),
        TellEnvoys(fleet(A, B, C), True),
        TellPickers(fleet(A, C), False),
        TellEnvoys(fleet(A, C), False),
    )


def test_a_replica_that_fails_leaves_the_pickers_first_and_keeps_its_place():
    sick = replace(A, healthy=False)
    assert from_old(fleet(A, B), fleet(sick, B)) == (
        TellPickers(fleet(sick, B), True),
        TellEnvoys(fleet(sick, B), False),
    )


def test_a_replica_that_recovers_reaches_the_pickers_last():
    sick = replace(A, healthy=False)
    assert from_old(fleet(sick, B), fleet(A, B)) == (
        TellEnvoys(fleet(A, B), True),
        TellPickers(fleet(A, B), False),
    )


def test_one_fails_while_another_recovers():
    sick_a, sick_b = replace(A, healthy=False), replace(B, healthy=False)
    assert from_old(fleet(A, sick_b), fleet(sick_a, B)) == (
        TellPickers(fleet(sick_a, sick_b), True),
        TellEnvoys(fleet(sick_a, B), True),
        TellPickers(fleet(sick_a, B), False),
    )


def test_a_drain_reaches_the_pickers_first():
    draining = replace(A, state=State.DRAINING)
    assert from_old(fleet(A, B), fleet(draining, B))[0] == TellPickers(fleet(draining, B), True)


def test_a_new_address_is_named_by_no_picker_before_the_envoys_know_it():
    moved = replace(A, address="10.0.0.9:80")
    assert from_old(fleet(A, B), fleet(moved, B)) == (
        TellEnvoys(fleet(moved, B), True),
        TellPickers(fleet(moved, B), False),
    )


def test_a_new_alias_is_known_to_the_pickers_first_and_an_old_one_to_the_end():
    assert from_old(fleet(A, aliases=("old",)), fleet(A, aliases=("new",))) == (
        TellPickers(fleet(A, aliases=("old", "new")), True),
        TellEnvoys(fleet(A, aliases=("new",)), True),
        TellPickers(fleet(A, aliases=("new",)), False),
    )


def test_a_pool_leaves_the_pickers_first_and_the_envoys_last():
    old, new = Fleet(fleet(A).pools + fleet(B, pool="q").pools), Fleet(fleet(A).pools + fleet(C, pool="r").pools)
    both = Fleet(old.pools + fleet(C, pool="r").pools)
    assert from_old(old, new) == (
        TellPickers(fleet(A), True),
        TellEnvoys(both, True),
        TellPickers(new, False),
        TellEnvoys(new, False),
    )


def test_replicas_without_an_address_are_told_to_nobody():
    named = Replica("n", "vllm.internal:80")
    assert reachable(fleet(A, named, Replica("six", "[fd00::1]:80"))) == fleet(A, Replica("six", "[fd00::1]:80"))


replicas = st.builds(
    Replica,
    id=st.sampled_from("abc"),
    address=st.sampled_from(["10.0.0.1:80", "10.0.0.2:80"]),
    state=st.sampled_from(State),
    healthy=st.booleans(),
)
pools = st.builds(
    lambda id_, rs: Pool(id_, id_, replicas=tuple(rs)),
    st.sampled_from("pq"),
    st.lists(replicas, max_size=3, unique_by=lambda r: r.id),
)
fleets = st.builds(lambda ps: Fleet(tuple(ps)), st.lists(pools, max_size=2, unique_by=lambda p: p.id))


def endpoints(fleet, chosen):
    return {(p.id, r.id, r.address) for p in fleet.pools for r in p.replicas if chosen(r)}


@given(pickers=fleets, envoys=fleets, target=fleets)
def test_any_plan_ends_with_the_target_and_joiners_are_known_to_the_envoys_first(pickers, envoys, target):
    told = {TellPickers: pickers, TellEnvoys: envoys}
    for step in plan(pickers, envoys, target):
        before, told[type(step)] = told[type(step)], step.fleet
        if isinstance(step, TellPickers):
            joined = endpoints(step.fleet, lambda r: r.in_hash) - endpoints(before, lambda r: r.in_hash)
            assert joined <= endpoints(told[TellEnvoys], lambda r: True)
        else:
            # What leaves an Envoy is not named by a picker any more.
            left = endpoints(before, lambda r: True) - endpoints(step.fleet, lambda r: True)
            moved = {(p, i) for p, i, _ in endpoints(step.fleet, lambda r: True)}
            named = {e for e in endpoints(told[TellPickers], lambda r: True) if e[:2] not in moved}
            assert not left & named
    assert told == {TellPickers: target, TellEnvoys: target}
