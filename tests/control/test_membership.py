from homing.control.leadership.standing import Role
from homing.control.membership import CONTROL, Membership
from homing.core.config import parse
from homing.core.fleet import AddressResolved, Fleet, HealthChanged, LengthTold, Pool, Replica, State


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


def ids(membership):
    return [r.id for r in membership.view.fleet.pools[0].replicas]


def state(membership, replica_id):
    return membership.view.fleet.pools[0].replica(replica_id).state


def test_a_source_adds_replicas_and_takes_only_its_own_away():
    membership = Membership(config(("a", "10.0.0.1:80")), ("api", "dns"))
    membership.report("dns", "p", (Replica("d", "10.0.0.4:80", state=State.JOINING, healthy=False),))
    membership.report("api", "p", (Replica("c", "10.0.0.3:80", state=State.JOINING, healthy=False),))
    assert ids(membership) == ["a", "c", "d"]
    membership.apply(HealthChanged("p", "d", True))
    membership.report("api", "p", ())
    assert ids(membership) == ["a", "d"]
    assert state(membership, "d") is State.READY


def test_a_new_file_keeps_what_other_sources_report():
    membership = Membership(config(("a", "10.0.0.1:80")), ("api",))
    membership.report("api", "p", (Replica("c", "10.0.0.3:80"),))
    membership.configure(config(("b", "10.0.0.2:80")))
    assert ids(membership) == ["b", "c"]


def test_a_drained_replica_keeps_its_place_until_it_is_away_and_joins_anew():
    membership = Membership(config(("a", "10.0.0.1:80"), ("b", "10.0.0.2:80")))
    membership.apply(HealthChanged("p", "a", True), HealthChanged("p", "b", True))
    membership.set_drains(frozenset({("p", "a")}), frozenset())
    assert state(membership, "a") is State.DRAINING
    membership.set_drains(frozenset(), frozenset({("p", "a")}))
    assert ids(membership) == ["b"]
    assert [r.id for r in membership.written.pools[0].replicas] == ["a", "b"]
    membership.set_drains(frozenset(), frozenset())
    assert ids(membership) == ["a", "b"]
    assert (state(membership, "a"), state(membership, "b")) == (State.JOINING, State.READY)


def test_a_drain_that_is_taken_back_leaves_the_replica_ready():
    membership = Membership(config(("a", "10.0.0.1:80")))
    membership.apply(HealthChanged("p", "a", True))
    membership.set_drains(frozenset({("p", "a")}), frozenset())
    membership.set_drains(frozenset(), frozenset())
    assert state(membership, "a") is State.READY


def test_a_drain_outlives_the_replica_of_its_name():
    membership = Membership(config(("a", "10.0.0.1:80")), ("api",))
    membership.set_drains(frozenset({("p", "x")}), frozenset())
    membership.report("api", "p", (Replica("x", "10.0.0.3:80"),))
    assert state(membership, "x") is State.DRAINING


def test_a_process_that_goes_on_alone_keeps_drains_discoveries_and_addresses():
    file = config(("a", "10.0.0.1:80"), ("b", "10.0.0.2:80"), ("n", "vllm.internal:80"))
    last = Fleet(
        (
            Pool(
                "p",
                "p",
                replicas=(
                    Replica("a", "10.0.0.1:80", state=State.DRAINING),
                    Replica("n", "10.0.0.7:80"),
                    Replica("pod", "10.0.0.8:80"),
                ),
            ),
        )
    )
    membership = Membership.following(file, last)
    assert membership.view.fleet.pools[0].replicas == last.pools[0].replicas
    membership.configure(config(("a", "10.0.0.1:80"), ("b", "10.0.0.2:80"), ("c", "10.0.0.3:80")))
    assert ids(membership) == ["a", "c", "n", "pod"]
    assert state(membership, "a") is State.DRAINING


def test_a_process_that_never_heard_of_a_fleet_begins_with_the_file():
    membership = Membership.following(config(("a", "10.0.0.1:80")), Fleet())
    assert (ids(membership), state(membership, "a")) == (["a"], State.JOINING)


def test_who_follows_serves_what_the_leader_says_and_nothing_else():
    membership = Membership(config(("a", "10.0.0.1:80")), ("api",))
    membership.role = lambda: Role.FOLLOWING
    leaders = Fleet((Pool("p", "m", replicas=(Replica("b", "10.0.0.2:80"),)), Pool("unknown-here", "n")))
    membership.adopt(leaders)
    assert not membership.apply(HealthChanged("p", "b", False))
    membership.report("api", "p", (Replica("c", "10.0.0.3:80"),))
    membership.set_drains(frozenset({("p", "b")}), frozenset())
    membership.configure(config(("a", "10.0.0.1:80"), more="expose_decisions: true\n"))
    assert membership.view.fleet == Fleet(leaders.pools[:1])
    assert membership.view.config.expose_decisions


def test_who_begins_to_decide_begins_with_what_it_served():
    membership = Membership(config(("a", "10.0.0.1:80"), ("b", "vllm.internal:80")), ("api",))
    membership.role = lambda: Role.FOLLOWING
    served = Pool("p", "p", replicas=(Replica("a", "10.0.0.1:80"), Replica("b", "10.0.0.7:80", epoch=7)))
    membership.adopt(Fleet((served,)))
    membership.apply(LengthTold("p", 4096))  # found out here too, and said once
    membership.report("api", "p", (Replica("c", "10.0.0.3:80", state=State.JOINING, healthy=False),))
    serial = membership.views.serial
    membership.role = lambda: Role.LEADING
    membership.decide()
    a, b, c = membership.view.fleet.pools[0].replicas
    assert (a.state, a.healthy, b.address, b.epoch, c.state) == (State.READY, True, "10.0.0.7:80", 7, State.JOINING)
    assert membership.view.fleet.pools[0].max_model_len == 4096
    assert membership.views.serial > serial


def test_who_is_alone_without_a_word_of_the_others_goes_on_with_what_it_told_last():
    membership = Membership(config(("a", "10.0.0.1:80"), ("b", "10.0.0.2:80")), ("api", CONTROL))
    membership.adopt(Fleet())
    membership.role = lambda: Role.ALONE
    membership.decide()
    registered = Replica("x", "10.0.0.9:80")
    membership.go_on(Fleet((Pool("p", "p", replicas=(Replica("a", "10.0.0.1:80"), registered)),)))
    assert [r.id for r in membership.view.fleet.pools[0].replicas] == ["a", "x"]  # b was drained away
    membership.role = lambda: Role.LEADING
    membership.decide()
    membership.set_drains(frozenset(), frozenset())
    assert [r.id for r in membership.view.fleet.pools[0].replicas] == ["a", "b"]
