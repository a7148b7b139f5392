"""The short way of the usual request decides and remembers what `place` does, and leaves the rest to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica, State
from homing.core.placement.decision import Arrival, Decision, Reason
from homing.core.placement.home import Placer
from homing.core.placement.load import Load, Vector
from homing.core.placement.pools import CompiledPool
from homing.core.session import Digester, Homes, SessionKey

SECRET = b"secret"
RANKS = tuple(Replica(f"big-{rank}", "10.0.1.1:80", rank=rank) for rank in range(2))
REPLICAS = (*(Replica(f"gpu-{n}", f"10.0.0.{n}:80", weight=n % 2 + 1) for n in range(4)), *RANKS)
POOL = CompiledPool.of(Pool("p", "served", replicas=REPLICAS))
FEWER = CompiledPool.of(
    Pool("p", "served", replicas=(REPLICAS[0], REPLICAS[1], Replica("gpu-2", "10.0.0.2:80", state=State.DRAINING)))
)


def key(number: int) -> SessionKey:
    return SessionKey(b"acme", b"s%d" % number, b"acme/s%d" % number)


def placer() -> Placer:
    return Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), SECRET, lambda n: 0)


Step = tuple[int, int, float, bool, int]
STEPS = st.tuples(
    st.integers(0, 5),  # the session
    st.sampled_from((0, 1, 700, 9_000, 400_000)),  # bytes
    st.sampled_from((0.0, 0.01, 1.0, 30.0, 120.0)),  # seconds since the last
    st.booleans(),  # whether the pool has shrunk
    st.sampled_from((0, 0, 0, 50_000)),  # tokens of a sibling that wait at the first replica
)


def run(one: Placer, steps: list[Step], short: bool) -> list[Decision | None]:
    now, decided = 1000.0, []
    for session, size_bytes, passed_s, shrunk, waiting in steps:
        now += passed_s
        pool = FEWER if shrunk else POOL
        one.load.absorb("other", {("p", "gpu-0"): Vector(waiting)}, now)
        decision = one.staying.begin(pool, key(session), size_bytes, now) if short else None
        if decision is None:
            decision = one.place(pool, Arrival(key(session), True, size_bytes), now)
            if decision is not None:
                one.begun(decision, now)
        decided.append(decision)
    return decided


@settings(max_examples=200)
@given(st.lists(STEPS, min_size=2, max_size=30))
def test_both_ways_lead_to_the_same_decisions_and_the_same_memory(steps: list[Step]):
    long, short = placer(), placer()
    assert run(long, steps, False) == run(short, steps, True)
    now = 1000.0 + sum(step[2] for step in steps)
    assert short.load.vectors(now) == long.load.vectors(now)
    for replica in REPLICAS:
        assert short.scales.kept("p", replica) == long.scales.kept("p", replica)
    assert short.scales.learned("p").uncached == long.scales.learned("p").uncached
    digests = long.homes.digests()
    assert short.homes.words_of(digests, now) == long.homes.words_of(digests, now)


def test_a_session_at_home_goes_the_short_way():
    one = placer()
    assert one.staying.begin(POOL, key(1), 700, 1.0) is None, "nobody knows it"
    first = one.place(POOL, Arrival(key(1), True, 700), 1.0)
    assert first is not None
    again = one.staying.begin(POOL, key(1), 700, 2.0)
    assert again is not None
    assert (again.reason, again.place, again.ref.digest) == (Reason.HOME, first.place, first.ref.digest)


def test_one_whose_home_is_gone_or_busy_does_not():
    one = placer()
    first = one.place(POOL, Arrival(key(1), True, 700), 1.0)
    assert first is not None
    without = CompiledPool.of(Pool("p", "served", replicas=tuple(r for r in REPLICAS if r.id != first.place[1])))
    assert one.staying.begin(without, key(1), 700, 2.0) is None
    one.load.begin(first.place, 100_000.0, 2.0)
    before = one.homes.words_of([first.ref.digest], 2.0)
    assert one.staying.begin(POOL, key(1), 700, 2.0) is None
    assert one.homes.words_of([first.ref.digest], 2.0) == before


@given(st.text(max_size=9), st.binary(max_size=9), st.binary(max_size=300), st.binary(max_size=64))
def test_a_digest_made_in_two_parts_is_the_same(pool_id: str, tenant: bytes, session: bytes, secret: bytes):
    named = SessionKey(tenant, session, b"")
    assert Digester(pool_id, secret).of(named) == named.digest(pool_id, secret)
