from homing.control.membership import Membership
from homing.core.config import parse
from homing.core.fleet import AddressResolved, HealthChanged, State


def config(*replicas, more=""):
    listed = "\n".join(f"    - {{id: {i}, address: '{a}'}}" for i, a in replicas)
    return parse(f"pools:\n  p:\n    replicas:\n{listed}\n{more}", "homing.yaml")


def addresses(membership):
    return {r.id: r.address for r in membership.view.fleet.pools[0].replicas}


def test_events_make_one_new_view():
    membership = Membership(config(("a", "10.0.0.1:80"), ("b", "10.0.0.2:80")))
    membership.apply(HealthChanged("p", "a", True), HealthChanged("p", "b", True))
    assert membership.views.serial == 1
    assert [r.state for r in membership.view.fleet.pools[0].replicas] == [State.READY, State.READY]


def test_events_that_change_nothing_tell_nobody():
    membership = Membership(config(("a", "10.0.0.1:80")))
    membership.apply(HealthChanged("p", "a", False), HealthChanged("nowhere", "a", True))
    membership.configure(config(("a", "10.0.0.1:80")))
    assert membership.views.serial == 0


def test_a_new_file_keeps_state_and_health_of_the_replicas_it_keeps():
    membership = Membership(config(("a", "10.0.0.1:80")))
    membership.apply(HealthChanged("p", "a", True))
    membership.configure(config(("a", "10.0.0.9:80"), ("b", "10.0.0.2:80")))
    a, b = membership.view.fleet.pools[0].replicas
    assert (a.address, a.state, a.healthy) == ("10.0.0.9:80", State.READY, True)
    assert (b.state, b.healthy) == (State.JOINING, False)


def test_a_new_file_that_changes_no_replica_is_a_new_view():
    membership = Membership(config(("a", "10.0.0.1:80")))
    membership.configure(config(("a", "10.0.0.1:80"), more="expose_decisions: true\n"))
    assert membership.views.serial == 1
    assert membership.view.config.expose_decisions


def test_a_name_that_stays_in_the_file_keeps_what_it_resolved_to():
    membership = Membership(config(("a", "vllm.internal:80")))
    membership.apply(AddressResolved("p", "a", "10.0.0.7:80"))
    membership.configure(config(("a", "vllm.internal:80"), ("b", "10.0.0.2:80")))
    assert addresses(membership) == {"a": "10.0.0.7:80", "b": "10.0.0.2:80"}


def test_another_name_for_a_replica_does_not_keep_the_old_address():
    membership = Membership(config(("a", "vllm.internal:80")))
    membership.apply(AddressResolved("p", "a", "10.0.0.7:80"))
    membership.configure(config(("a", "other.internal:80")))
    assert addresses(membership) == {"a": "other.internal:80"}
    membership.configure(config(("a", "10.0.0.8:80")))
    assert addresses(membership) == {"a": "10.0.0.8:80"}
