import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.fleet import MODES, Fleet, Pool, Replica
from homing.core.policy import Policy, PolicyDifference, PoolPolicy, applied, differences, lesser, within

FLEET = Fleet((Pool("p", "m", replicas=(Replica("a", "10.0.0.1:80"), Replica("b", "10.0.0.2:80"))), Pool("q", "n")))
CANARY = PoolPolicy("route", {"b": 0.1})


def test_nothing_said_changes_nothing():
    assert applied(Policy(), FLEET) == FLEET


def test_mode_and_shares_are_in_the_fleet_and_weights_are_not_touched():
    p, q = applied(Policy(pools={"p": CANARY}), FLEET).pools
    assert (p.mode, [(r.share, r.weight) for r in p.replicas], q.mode) == ("route", [(1.0, 1), (0.1, 1)], None)


def test_bypass_turns_every_pool_off():
    assert [pool.mode for pool in applied(Policy(bypass=True, pools={"p": CANARY}), FLEET).pools] == ["off", "off"]


def test_no_share_is_no_new_session_and_still_in_the_hash():
    replica = applied(Policy(pools={"p": PoolPolicy(shares={"a": 0.0})}), FLEET).pools[0].replicas[0]
    assert (replica.takes_new_sessions, replica.in_hash) == (False, True)


@given(st.sampled_from(MODES), st.one_of(st.none(), st.sampled_from(MODES)))
def test_a_policy_only_takes_away(file, policy):
    holds = lesser(file, policy)
    assert MODES.index(holds) <= MODES.index(file)
    assert policy is None or MODES.index(holds) <= MODES.index(policy)
    assert holds in (file, policy)


@pytest.mark.parametrize("policy", [Policy(), Policy(pools={"p": CANARY}), Policy(bypass=True)])
def test_who_goes_on_alone_with_a_fleet_goes_on_with_its_policy(policy):
    fleet = applied(policy, FLEET)
    assert applied(within(fleet), FLEET) == fleet


def test_every_pool_off_is_taken_for_the_bypass_which_can_be_ended():
    bypassed = applied(Policy(bypass=True, pools={"p": CANARY}), FLEET)
    assert within(bypassed) == Policy(bypass=True, pools={"p": PoolPolicy(None, {"b": 0.1})})
    assert within(applied(Policy(pools={"p": PoolPolicy("off")}), FLEET)) == Policy(pools={"p": PoolPolicy("off")})
    assert within(Fleet()) == Policy()


def test_what_does_not_hold_is_said():
    policy = Policy(pools={"p": PoolPolicy("full", {"gone": 0.5}), "q": PoolPolicy("off"), "x": PoolPolicy("off")})
    assert list(differences(policy, {"p": "observe", "q": "full"}, FLEET)) == [
        PolicyDifference("p", "mode full", "mode observe, as the file says"),
        PolicyDifference("p", "a share for gone", "it is not there"),
        PolicyDifference("x", "a policy", "there is no such pool"),
    ]
