"""Every event as a table: a fleet before, what happened, the fleet after."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.fleet import (
    AddressResolved,
    DrainChanged,
    Event,
    Fleet,
    HealthChanged,
    LengthTold,
    MembershipReported,
    Pool,
    PoolsReported,
    Replica,
    State,
    TemplateProbed,
    decode,
    encode,
)
from homing.core.template.record import Capabilities, Fate

JOINING = Replica("a", "10.0.0.1:8000", state=State.JOINING, healthy=False)
READY = Replica("b", "10.0.0.2:8000", weight=2)
JOINED = replace(JOINING, state=State.READY, healthy=True)
SICK = replace(READY, healthy=False)
DRAINING = replace(READY, state=State.DRAINING)
MOVED = replace(READY, address="10.9.9.9:1")
C = Replica("c", "10.0.0.3:8000")
SICK_C = replace(C, healthy=False)


def fleet(*replicas: Replica) -> Fleet:
    """Two pools of the same replicas: what happens in `p` must leave `q` alone."""
    return Fleet((Pool("p", "model-p", ("alias",), "maglev", replicas), Pool("q", "model-q", replicas=replicas)))


def in_p(*replicas: Replica) -> Fleet:
    return Fleet((Pool("p", "model-p", ("alias",), "maglev", replicas), fleet(READY).pools[1]))


@dataclass(frozen=True)
class Case:
    name: str
    before: Replica
    event: Event
    after: Replica


def health(replica: Replica, healthy: bool) -> HealthChanged:
    return HealthChanged("p", replica.id, healthy)


def drain(replica: Replica, draining: bool) -> DrainChanged:
    return DrainChanged("p", replica.id, draining)


OF_ONE_REPLICA = [
    Case("the first success makes it ready", JOINING, health(JOINING, True), JOINED),
    Case("a failure while joining", JOINING, health(JOINING, False), JOINING),
    Case("a ready one fails: it stays a member", READY, health(READY, False), SICK),
    Case("it recovers", SICK, health(SICK, True), READY),
    Case("no news", READY, health(READY, True), READY),
    Case("a draining one fails", DRAINING, health(DRAINING, False), replace(DRAINING, healthy=False)),
    Case("a draining one succeeds: it still drains", DRAINING, health(DRAINING, True), DRAINING),
    Case("drain", READY, drain(READY, True), DRAINING),
    Case("drain while sick", SICK, drain(SICK, True), replace(SICK, state=State.DRAINING)),
    Case("drain twice", DRAINING, drain(DRAINING, True), DRAINING),
    Case("undrain", DRAINING, drain(DRAINING, False), READY),
    Case("undrain what is ready", READY, drain(READY, False), READY),
    Case("undrain what is joining: only a probe proves it fit", JOINING, drain(JOINING, False), JOINING),
    Case("drain while joining", JOINING, drain(JOINING, True), replace(JOINING, state=State.DRAINING)),
    Case("a name leads elsewhere", READY, AddressResolved("p", "b", "10.9.9.9:1"), MOVED),
    Case("a name leads where it did", READY, AddressResolved("p", "b", READY.address), READY),
    Case("health of an unknown replica", READY, HealthChanged("p", "zzz", False), READY),
    Case("drain of an unknown replica", READY, DrainChanged("p", "zzz", True), READY),
    Case("address of an unknown replica", READY, AddressResolved("p", "zzz", "1.1.1.1:1"), READY),
    Case("health in an unknown pool", READY, HealthChanged("zzz", "b", False), READY),
]  # fmt: skip


@pytest.mark.parametrize("case", OF_ONE_REPLICA, ids=lambda case: case.name)
def test_event(case: Case):
    other = Replica("other", "10.0.0.9:8000")
    before = fleet(case.before, other)
    after = before.apply(case.event)
    assert after.pools[0] == replace(before.pools[0], replicas=(case.after, other))
    assert after.pools[1] == before.pools[1]
    assert (after is before) == (case.after == case.before)


def test_membership_keeps_what_is_known_of_a_replica_and_takes_the_rest_as_reported():
    before = fleet(DRAINING, SICK_C, Replica("d", "10.0.0.4:8000"))
    reported = (
        Replica("e", "10.0.0.5:8000", state=State.JOINING, healthy=False),
        C,
        replace(READY, address="n:1", weight=3),
    )
    after = before.apply(MembershipReported("p", reported))
    assert after.pools[0].replicas == (reported[0], SICK_C, replace(DRAINING, address="n:1", weight=3))
    assert after.pools[1] == before.pools[1]


def test_membership_of_none_empties_the_pool_and_keeps_it():
    assert fleet(READY).apply(MembershipReported("p", ())) == in_p()


@pytest.mark.parametrize(
    "event",
    [
        MembershipReported("p", (READY,)),
        MembershipReported("p", (replace(READY, state=State.JOINING, healthy=False),)),  # as the file has it
        MembershipReported("zzz", (C,)),
        PoolsReported(fleet(READY).pools),
    ],
)
def test_a_report_of_what_is_known_gives_the_same_object(event: Event):
    before = fleet(READY)
    assert before.apply(event) is before


def test_a_new_file_brings_pools_takes_pools_and_renames_them():
    before = fleet(DRAINING)
    fresh = replace(READY, state=State.JOINING, healthy=False)
    renamed, new = Pool("p", "other-name", (), "ring", (fresh, C)), Pool("r", "model-r", replicas=(fresh,))
    after = before.apply(PoolsReported((new, renamed)))
    assert after == Fleet((new, replace(renamed, replicas=(DRAINING, C))))


STRICT = Capabilities(later_system=Fate.REFUSED, alternates=True)


def test_a_probed_template_is_the_pools_until_another_one_is():
    probed = fleet(READY).apply(TemplateProbed("p", STRICT, "d1"))
    assert [(pool.template, pool.template_digest) for pool in probed.pools] == [(STRICT, "d1"), (None, "")]
    assert probed.apply(TemplateProbed("p", STRICT, "d1")) is probed
    assert probed.apply(TemplateProbed("zzz", None)) is probed
    assert probed.apply(TemplateProbed("p", None)) == fleet(READY)


def test_a_new_file_keeps_the_template_of_a_pool_that_stays():
    probed = fleet(READY).apply(TemplateProbed("p", STRICT, "d1"))
    after = probed.apply(PoolsReported((Pool("p", "other", replicas=(READY,)), Pool("r", "model-r"))))
    assert [(pool.template, pool.template_digest) for pool in after.pools] == [(STRICT, "d1"), (None, "")]


def test_what_the_engines_take_is_the_pools_and_stays_with_a_new_file():
    told = fleet(READY).apply(LengthTold("p", 4096))
    assert [pool.max_model_len for pool in told.pools] == [4096, 0]
    assert told.apply(LengthTold("p", 4096)) is told
    assert decode(encode(told)) == told
    after = told.apply(PoolsReported((Pool("p", "other", replicas=(READY,)), Pool("r", "model-r"))))
    assert [pool.max_model_len for pool in after.pools] == [4096, 0]


def test_the_same_id_in_another_pool_is_another_replica():
    """A replica's state and health belong to its pool."""
    before = Fleet((Pool("p", "p", replicas=(SICK,)),))
    after = before.apply(PoolsReported((Pool("p", "p", replicas=(READY,)), Pool("q", "q", replicas=(READY,)))))
    assert [pool.replicas for pool in after.pools] == [(SICK,), (READY,)]


def test_an_event_that_says_nothing_is_a_bug():
    with pytest.raises(TypeError, match="Event is not a membership event"):
        Fleet().apply(Event())


@pytest.mark.parametrize(
    ("replica", "in_hash", "takes_new"),
    [
        (READY, True, True),
        (DRAINING, True, False),
        (SICK, False, False),
        (replace(DRAINING, healthy=False), False, False),
        (JOINING, False, False),
        (replace(JOINING, healthy=True), False, False),
    ],
)
def test_who_is_in_the_hash_and_who_takes_new_sessions(replica: Replica, in_hash: bool, takes_new: bool):
    assert (replica.in_hash, replica.takes_new_sessions) == (in_hash, takes_new)


def test_a_pool_answers_to_its_served_name_first():
    assert fleet(READY).pools[0].names == ("model-p", "alias")


def test_lookups_by_id():
    known = fleet(READY)
    assert known.pool("q") is known.pools[1]
    assert known.pools[0].replica("b") is READY
    assert (known.pool("zzz"), known.pools[0].replica("zzz")) == (None, None)


text = st.text(max_size=6)
replicas = st.builds(Replica, text, text, st.integers(1, 128), st.sampled_from(State), st.booleans())
pools = st.builds(
    Pool, text, text, st.lists(text, max_size=2).map(tuple), st.sampled_from(["ring", "maglev"]),
    st.lists(replicas, max_size=3).map(tuple), st.sampled_from([None, STRICT, Capabilities()]),
)  # fmt: skip
fleets = st.builds(Fleet, st.lists(pools, max_size=3).map(tuple))


@given(fleets)
def test_the_feeds_form_is_one_line_that_gives_the_fleet_back(fleet: Fleet):
    assert decode(encode(fleet)) == fleet
    assert b"\n" not in encode(fleet)


@given(fleets, fleets)
def test_the_version_is_the_contents(one: Fleet, other: Fleet):
    assert (one.version == other.version) == (one == other)
    assert decode(encode(one)).version == one.version


def test_the_version_is_the_same_in_every_process():
    assert (Fleet().version, fleet(READY).version) == ("2e61e8c62599f686", "e3500a926c588e7f")


@pytest.mark.parametrize("data", [b"", b"null", b"{", b'{"pools":[{"id":1}]}', b'{"pools":[{"id":"p"}]}'])
def test_what_is_no_fleet_is_refused(data: bytes):
    with pytest.raises(msgspec.DecodeError):
        decode(data)
