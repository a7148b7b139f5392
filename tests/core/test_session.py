"""The table of homes equals a plain model of it; and no two sessions are ever one."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from homing.core.session import Homes, SessionKey

TTL_S = 10.0

header = st.binary(max_size=12).map(lambda value: value.replace(b"\0", b""))  # no header holds a NUL
pool_ids = st.text("abc-", min_size=1, max_size=3)
identities = st.tuples(pool_ids, header, header)


def digest(identity: tuple[str, bytes, bytes], secret: bytes = b"s" * 16) -> bytes:
    pool_id, tenant, session = identity
    return SessionKey(tenant, session, tenant + b"/" + session).digest(pool_id, secret)


class HomesModel(RuleBasedStateMachine):
    """Homes against an ordinary dict that drops nothing but what it must."""

    digests = Bundle("digests")

    @initialize(target=digests, bound=st.integers(1, 5))
    def begin(self, bound: int):
        self.bound, self.now = bound, 1000.0
        self.homes = Homes(TTL_S, bound)
        self.model: dict[bytes, tuple[str, float, str | None, int]] = {}  # in the order of use
        self.evicted = 0
        return multiple(*(b"digest-%d" % i for i in range(8)))

    def living(self) -> dict[bytes, tuple[str, float, str | None, int]]:
        return {key: entry for key, entry in self.model.items() if self.now - entry[1] < TTL_S}

    @rule(
        digest=digests,
        home=st.sampled_from("abc"),
        heir=st.none() | st.sampled_from("xyz"),
        tokens=st.integers(0, 10**9),
    )
    def put(self, digest: bytes, home: str, heir: str | None, tokens: int):
        self.homes.put(digest, home, self.now, heir, tokens)
        self.model.pop(digest, None)
        self.model[digest] = (home, self.now, heir, tokens)
        self.model = self.living()
        if len(self.model) > self.bound:
            del self.model[next(iter(self.model))]
            self.evicted += 1

    @rule(digest=digests)
    def forget(self, digest: bytes):
        self.homes.forget(digest, self.now)
        self.model.pop(digest, None)

    @rule(seconds=st.sampled_from([0.0, 0.5, TTL_S / 2, TTL_S - 0.001, TTL_S, 3 * TTL_S]))
    def wait(self, seconds: float):
        self.now += seconds

    @rule(digest=digests)
    def get(self, digest: bytes):
        known = self.living().get(digest)
        assert self.homes.get(digest, self.now) == (known[0] if known else None)
        if known:
            assert (self.homes.heir(digest), self.homes.size(digest)) == (known[2], (known[1], known[3]))

    @invariant()
    def bounded(self):
        if hasattr(self, "homes"):
            assert len(self.living()) <= len(self.homes) <= self.bound
            assert self.homes.evicted == self.evicted
            assert dict(self.homes.living(self.now)) == {key: entry[0] for key, entry in self.living().items()}


TestHomesEqualTheirModel = HomesModel.TestCase
TestHomesEqualTheirModel.settings = settings(max_examples=150, stateful_step_count=40)


def test_the_longest_idle_leaves_first_and_is_counted():
    homes = Homes(TTL_S, 2)
    homes.put(b"a", "r1", now=0)
    homes.put(b"b", "r2", now=1)
    homes.put(b"a", "r1", now=2)  # used again
    homes.put(b"c", "r3", now=3)
    assert [homes.get(key, 3) for key in (b"a", b"b", b"c")] == ["r1", None, "r3"]
    assert homes.evicted == 1


def test_looking_is_not_use():
    homes = Homes(TTL_S, 10)
    homes.put(b"a", "r1", now=0)
    assert homes.get(b"a", 9.9) == "r1"
    assert homes.get(b"a", 10.0) is None


def test_use_prolongs():
    homes = Homes(TTL_S, 10)
    homes.put(b"a", "r1", now=0)
    homes.put(b"a", "r1", now=9)
    assert homes.get(b"a", 18.9) == "r1"


def test_the_dead_leave_while_others_come_and_are_not_evictions():
    homes = Homes(TTL_S, 1000)
    for i in range(100):
        homes.put(b"old-%d" % i, "r", now=0)
    for i in range(100):
        homes.put(b"new-%d" % i, "r", now=20)
    assert (len(homes), homes.evicted) == (100, 0)


def test_an_unknown_session_has_neither_home_nor_heir():
    homes = Homes(TTL_S, 10)
    assert not homes.forget(b"never seen", 0)
    assert (homes.get(b"never seen", 0), homes.heir(b"never seen"), len(homes)) == (None, None, 0)


@given(identities, identities)
def test_two_identities_never_share_a_digest(one: tuple[str, bytes, bytes], other: tuple[str, bytes, bytes]):
    assert (digest(one) == digest(other)) == (one == other)


@given(st.text("abc/-", min_size=1, max_size=9), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_no_part_of_an_identity_can_be_moved_into_another(text: str, cuts: list[int]):
    """(tenant a/b, session c) is not (tenant a, session b/c), though Envoy's hash key is the same text."""

    def cut(at: list[int]) -> tuple[str, bytes, bytes]:
        first, second = sorted(at)
        return text[:first], text[first:second].encode(), text[second:].encode()

    one, other = cut(cuts[:2]), cut(cuts[2:])
    assert (digest(one) == digest(other)) == (one == other)


def test_digests_are_16_bytes_whatever_the_id_and_depend_on_the_secret():
    identity = ("pool", b"tenant", b"x" * 20_000)
    assert len(digest(identity)) == 16
    assert digest(identity) != digest(identity, b"t" * 16)


def test_a_table_that_is_made_smaller_shrinks_with_use_and_counts_what_it_forgets():
    homes = Homes(TTL_S, 10)
    for i in range(10):
        homes.put(b"%d" % i, "a", 0.0)
    homes.limit(TTL_S, 4)
    for _ in range(4):
        homes.put(b"9", "a", 1.0)
    assert len(homes) == 4
    assert homes.evicted == 6
    assert homes.get(b"9", 1.0) == "a"
    assert homes.get(b"0", 1.0) is None


def test_a_shorter_idle_time_holds_for_sessions_that_are_there():
    homes = Homes(TTL_S, 10)
    homes.put(b"a", "r", 0.0)
    homes.limit(1.0, 10)
    assert homes.get(b"a", 0.5) == "r"
    assert homes.get(b"a", 1.0) is None


@pytest.mark.parametrize("length", [1, 255, 256, 257, 20_000])
def test_the_key_holds_the_beginning_of_an_id(length: int):
    session = b"s" * length
    key = SessionKey(b"t", session, b"t/" + session[:256])
    assert key.prefix == b"t/"
    assert key.named(b"n" * length).text == b"t/" + b"n" * min(length, 256)


def test_long_ids_that_begin_alike_are_two_sessions():
    one, two = b"s" * 256 + b"1", b"s" * 256 + b"2"
    digests = {SessionKey(b"", s, b"/" + s[:256]).digest("p", b"secret") for s in (one, two)}
    assert len(digests) == 2


def test_a_session_costs_no_more_than_300_bytes_also_after_others_have_come_and_gone():
    """So 200,000 cost 60 MB at most: `pytest bench/micro/test_homes.py` measures that many."""
    sessions = 25_000
    tracemalloc.start()
    try:
        homes = Homes(1800.0, sessions)
        for i in range(2 * sessions):
            homes.put(i.to_bytes(16, "big"), "gpu-1", 1000.0 + i / sessions, "gpu-2", 10_000 + i)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(homes) == sessions
    assert size_bytes / sessions < 300


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", None])), max_size=60))
def test_those_of_a_replica_are_those_that_live_there(changes: list[tuple[int, str | None]]):
    homes = Homes(ttl_s=30.0, max_sessions=6)
    for now, (session, replica) in enumerate(changes):
        if replica is None:
            homes.forget(bytes([session]), float(now))
        else:
            homes.put(bytes([session]), replica, float(now))
    end = float(len(changes) + 10)
    for replica in ("a", "b", "c"):
        assert sorted(homes.at(replica, end)) == sorted(d for d, home in homes.living(end) if home == replica)
