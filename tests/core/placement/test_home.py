"""Where a request goes and why: every reason, and what happens when the place is not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica, State
from homing.core.hashing import Table
from homing.core.placement.decision import Arrival, Decision, Reason, Ref
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.session import Homes, SessionKey

TTL_S = 100.0
REPLICAS = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(4))
POOL = CompiledPool.of(Pool("p", "model", replicas=REPLICAS))
DRAINING = {"state": State.DRAINING}
DEAD = {"healthy": False}


def pool(changes: dict[str, dict[str, object]], hash_policy: str = "ring") -> CompiledPool:
    """The pool with some replicas changed, by id."""
    changed = tuple(replace(r, **changes.get(r.id, {})) for r in REPLICAS)
    return CompiledPool.of(Pool("p", "model", hash=hash_policy, replicas=changed))


def key(session: str, tenant: str = "t") -> SessionKey:
    return SessionKey(tenant.encode(), session.encode(), f"{tenant}/{session}".encode())


def order(session: str = "s", within: CompiledPool = POOL) -> list[str]:
    """The replicas in the order of the hash, the owner first."""
    return [r.id for r in within.walk(key(session).text)]


def address(replica_id: str) -> str:
    return next(r.address for r in REPLICAS if r.id == replica_id)


class Placing:
    """A placer with a clock; `place` wants a decision."""

    def __init__(self, break_tie: Callable[[int], int] = lambda n: 0) -> None:
        self.placer = Placer(Homes(TTL_S, 1000), Chains(TTL_S, 1000), Load(), b"secret", break_tie)
        self.now = 0.0

    def place(self, session: str = "s", within: CompiledPool = POOL, *, given: bool = True) -> Decision:
        decision = self.placer.place(within, Arrival(key(session), given), self.now)
        assert decision is not None
        return decision

    def told(self, session: str = "s", within: CompiledPool = POOL) -> tuple[Reason, str]:
        decision = self.place(session, within)
        return decision.reason, decision.place[1]


@pytest.fixture
def placing() -> Placing:
    return Placing()


def test_a_clients_id_goes_to_the_owner_then_home(placing: Placing):
    owner, heir, *_ = order()
    first = placing.place()
    ref = Ref(key("s").digest("p", b"secret"), owner, tokens=1000, at_most=True)
    endpoints = (address(owner), address(heir))
    assert first == Decision(Reason.HASH, ("p", owner), endpoints, ref, session=None, uncached=1000.0, tokens=1000.0)
    again = placing.place()
    assert (again.reason, again.place, again.endpoints) == (Reason.HOME, first.place, first.endpoints)


def test_a_session_is_forgotten_after_its_idle_time(placing: Placing):
    placing.told()
    placing.now = TTL_S
    assert placing.told()[0] is Reason.HASH
    placing.now += TTL_S - 0.1
    assert placing.told()[0] is Reason.HOME


def test_tenants_with_the_same_id_are_two_sessions(placing: Placing):
    placing.told()
    other = placing.placer.place(POOL, Arrival(key("s", "other"), given=True), 0.0)
    assert other is not None
    assert other.reason is not Reason.HOME


def test_an_id_whose_owner_drains_is_placed_on_the_next_and_stays(placing: Placing):
    owner, second, *_ = order()
    draining = pool({owner: DRAINING})
    assert placing.told(within=draining) == (Reason.PLACED, second)
    assert placing.told(within=draining) == (Reason.HOME, second)
    assert placing.told(within=POOL) == (Reason.HOME, second)


def test_a_session_stays_with_its_home_while_that_drains(placing: Placing):
    owner, second, *_ = order()
    placing.told()
    decision = placing.place(within=pool({owner: DRAINING}))
    assert (decision.reason, decision.place[1]) == (Reason.HOME, owner)
    assert decision.endpoints == (address(owner), address(second))


def test_a_session_whose_home_died_moves_to_its_heir_and_stays(placing: Placing):
    owner, heir, *_ = order()
    placing.told()
    assert placing.told(within=pool({owner: DEAD})) == (Reason.MOVED, heir)
    assert placing.told(within=pool({owner: DEAD})) == (Reason.HOME, heir)
    assert placing.told(within=POOL) == (Reason.HOME, heir)


def test_the_heir_is_the_one_that_envoy_was_told_also_when_the_order_has_changed(placing: Placing):
    """Envoy has retried there since the home died, so the session's cache is there."""
    owner, second, third, _ = order()
    first = placing.place(within=pool({second: DRAINING}))
    assert first.endpoints == (address(owner), address(third))
    assert placing.told(within=pool({owner: DEAD})) == (Reason.MOVED, third)


@pytest.mark.parametrize("fate", [DRAINING, DEAD])
def test_an_heir_that_is_not_fit_is_passed_over(placing: Placing, fate: dict[str, object]):
    owner, heir, third, _ = order()
    placing.told()
    changed = pool({owner: DEAD, heir: fate})
    expected = next(name for name in order(within=changed) if name != heir)
    assert placing.told(within=changed) == (Reason.MOVED, expected)
    assert expected in {third, order()[3]}


def test_a_home_that_left_the_pool_is_as_good_as_dead(placing: Placing):
    owner, heir, *_ = order()
    placing.told()
    without = CompiledPool.of(Pool("p", "model", replicas=tuple(r for r in REPLICAS if r.id != owner)))
    assert placing.told(within=without) == (Reason.MOVED, heir)


def test_where_all_drain_a_new_id_goes_to_its_owner(placing: Placing):
    all_drain = pool({r.id: DRAINING for r in REPLICAS})
    decision = placing.place(within=all_drain)
    assert (decision.reason, decision.place[1]) == (Reason.HASH, order()[0])
    assert decision.endpoints == (address(order()[0]),)


def test_where_all_drain_a_session_that_lost_its_home_has_moved(placing: Placing):
    owner, *others = order()
    placing.told()
    changed = pool({owner: DEAD} | dict.fromkeys(others, DRAINING))
    assert placing.told(within=changed) == (Reason.MOVED, order(within=changed)[0])
    assert placing.told(within=changed)[0] is Reason.HOME


def test_where_all_drain_a_session_that_begins_begins_somewhere(placing: Placing):
    decision = placing.place(within=pool({r.id: DRAINING for r in REPLICAS}), given=False)
    assert (decision.reason, decision.place) == (Reason.NEW, ("p", "gpu-0"))


@pytest.mark.parametrize("given", [True, False])
def test_without_members_nothing_is_decided_nor_remembered(placing: Placing, given: bool):
    nobody = pool({r.id: DEAD for r in REPLICAS})
    assert placing.placer.place(nobody, Arrival(key("s"), given), 0.0) is None
    assert len(placing.placer.homes) == 0


def test_one_member_has_no_heir(placing: Placing):
    alone = CompiledPool.of(Pool("p", "model", replicas=REPLICAS[:1]))
    assert placing.place(within=alone).endpoints == (REPLICAS[0].address,)


def test_an_heir_is_never_the_same_address_again(placing: Placing):
    """Two replicas behind one address: a retry there would be no other chance."""
    twins = tuple(replace(r, address="10.0.0.0:8000") for r in REPLICAS[:3])
    assert placing.place(within=CompiledPool.of(Pool("p", "model", replicas=twins))).endpoints == ("10.0.0.0:8000",)
    other = CompiledPool.of(Pool("p", "model", replicas=(*twins, REPLICAS[3])))
    assert set(placing.place("t", within=other).endpoints) == {"10.0.0.0:8000", REPLICAS[3].address}


@pytest.mark.parametrize("hash_policy", ["ring", "maglev"])
def test_a_session_that_begins_goes_to_the_least_loaded_and_its_id_fits(placing: Placing, hash_policy: str):
    within = pool({}, hash_policy)
    for busy in ("gpu-0", "gpu-1", "gpu-3"):
        placing.placer.load.begin(("p", busy))
    decision = placing.place("base", within, given=False)
    assert (decision.reason, decision.place) == (Reason.NEW, ("p", "gpu-2"))
    assert decision.session is not None
    session = decision.session.decode()
    assert session.startswith("base-")
    assert order(session, within)[0] == "gpu-2"
    assert decision.endpoints == tuple(map(address, order(session, within)[:2]))
    assert placing.told(session, within) == (Reason.HOME, "gpu-2")
    assert Placing().told(session, within) == (Reason.HASH, "gpu-2"), "a picker that knows nothing agrees"


def test_a_session_never_begins_where_it_cannot_stay(placing: Placing):
    for _ in range(5):
        placing.placer.load.begin(("p", "gpu-1"))
        placing.placer.load.begin(("p", "gpu-2"))
    decision = placing.place(within=pool({"gpu-0": DRAINING, "gpu-3": DEAD}), given=False)
    assert decision.place[1] in {"gpu-1", "gpu-2"}


def test_load_counts_by_weight(placing: Placing):
    weighted = pool({"gpu-2": {"weight": 4}} | dict.fromkeys(("gpu-0", "gpu-1"), DEAD))
    for busy in ("gpu-2", "gpu-2", "gpu-2", "gpu-3"):
        placing.placer.load.begin(("p", busy))
    assert placing.place(within=weighted, given=False).place[1] == "gpu-2"


def test_load_in_another_pool_does_not_count(placing: Placing):
    placing.placer.load.begin(("q", "gpu-0"))
    assert placing.place(given=False).place[1] == "gpu-0"


@pytest.mark.parametrize("choice", range(3))
def test_ties_are_broken_by_the_given_choice_among_the_best_only(choice: int):
    asked: list[int] = []

    def break_tie(n: int) -> int:
        asked.append(n)
        return choice

    placing = Placing(break_tie)
    placing.placer.load.begin(("p", "gpu-1"))
    assert placing.place(given=False).place[1] == ("gpu-0", "gpu-2", "gpu-3")[choice]
    assert asked == [3]


def test_an_id_that_cannot_be_minted_is_pinned_as_it_came(placing: Placing):
    class OwnsNothing:
        def owner(self, key: bytes) -> int | None:
            return None

        walk = staticmethod(POOL.table.walk)

    table: Table = OwnsNothing()
    odd = replace(POOL, table=table)
    decision = placing.place("base", odd, given=False)
    assert (decision.reason, decision.place, decision.session) == (Reason.PLACED, ("p", "gpu-0"), b"base")
    assert placing.told("base", odd) == (Reason.HOME, "gpu-0")


def test_placing_counts_nothing_as_in_flight(placing: Placing):
    placing.place()
    placing.place(given=False)
    assert placing.placer.load.snapshot() == {}


def test_who_really_served_is_the_home_from_then_on(placing: Placing):
    decision = placing.place()
    assert placing.placer.served_by(POOL, decision.ref, "gpu-3", 1.0) is (decision.place[1] != "gpu-3")
    assert placing.told() == (Reason.HOME, "gpu-3")


def test_an_outcome_at_home_changes_nothing_and_keeps_the_heir(placing: Placing):
    owner, heir, *_ = order()
    decision = placing.place()
    assert not placing.placer.served_by(POOL, decision.ref, owner, 1.0)
    assert placing.told(within=pool({owner: DEAD})) == (Reason.MOVED, heir)


@pytest.mark.parametrize("digest", [b"", b"x" * 16])
def test_an_outcome_of_a_session_that_is_not_known_changes_nothing(placing: Placing, digest: bytes):
    assert not placing.placer.served_by(POOL, Ref(digest, "gpu-0"), "gpu-3", 0.0)
    assert len(placing.placer.homes) == 0


def test_an_outcome_of_an_ended_session_or_of_a_replica_that_is_gone_changes_nothing(placing: Placing):
    decision = placing.place()
    other = order()[2]
    assert not placing.placer.served_by(pool({other: DEAD}), decision.ref, other, 1.0)
    assert not placing.placer.served_by(POOL, decision.ref, "gone", 1.0)
    assert not placing.placer.served_by(POOL, decision.ref, other, TTL_S)


@cache
def compiled(fates: tuple[str, ...]) -> CompiledPool:
    changes = {"fit": {}, "draining": DRAINING, "dead": DEAD}
    return pool({r.id: changes[fate] for r, fate in zip(REPLICAS, fates, strict=True)})


fates = st.tuples(*[st.sampled_from(["fit", "draining", "dead"])] * len(REPLICAS))


@given(st.lists(st.tuples(fates, st.integers(0, 3), st.booleans()), max_size=12))
def test_whatever_happens_a_request_goes_where_it_can_be_served(
    steps: list[tuple[tuple[str, ...], int, bool]],
):
    """Also: never to a place that takes no new sessions if it is not home, unless all drain; and home is kept."""
    placing, homes = Placing(), dict[int, str]()
    for fates_now, session, given_id in steps:
        within = compiled(fates_now)
        decision = placing.placer.place(within, Arrival(key(f"s{session}"), given_id), 0.0)
        if decision is None:
            assert not within.members
            continue
        target = within.member(decision.place[1])
        assert target is not None
        assert decision.endpoints[0] == target.address
        assert len(set(decision.endpoints)) == len(decision.endpoints)
        assert all(next(r for r in within.members if r.address == a).takes_new_sessions for a in decision.endpoints[1:])
        known = homes.get(session) if given_id else None
        assert (decision.reason is Reason.HOME) == (known is not None and within.member(known) is not None)
        if decision.reason is Reason.HOME:
            assert target.id == known
        elif any(r.takes_new_sessions for r in within.members):
            assert target.takes_new_sessions
        assert (decision.reason is Reason.MOVED) == (known is not None and within.member(known) is None)
        if given_id:
            homes[session] = target.id


def test_the_hash_spreads_first_turns(placing: Placing):
    counts = Counter(placing.told(f"s{i}")[1] for i in range(400))
    assert set(counts) == {r.id for r in REPLICAS}
    assert max(counts.values()) < 150


def test_a_burst_of_new_sessions_does_not_stampede_to_a_replica_that_joined(placing: Placing):
    """It is preferred while what waits there is less than what its emptiness is worth, and then shares."""
    fifth = Replica("gpu-4", "10.0.0.4:8000")
    more = CompiledPool.of(Pool("p", "model", replicas=(*REPLICAS, fifth)))

    def begin(number: int, within: CompiledPool) -> str:
        arrival = Arrival(key(f"new-{number}"), False, 16_000)
        decision = placing.placer.place(within, arrival, placing.now)
        assert decision is not None
        placing.placer.begun(decision, placing.now)
        return decision.place[1]

    before = Counter(begin(number, POOL) for number in range(40))
    assert set(before.values()) == {10}
    placing.now += 60.0  # all prompts are prefilled, all sessions active still
    at = [begin(number, more) for number in range(100, 140)]
    assert at[0] == "gpu-4"
    counts = Counter(at)
    assert counts["gpu-4"] == max(counts.values())
    assert counts["gpu-4"] <= 20
    assert min(counts.values()) >= 3
