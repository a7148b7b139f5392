"""The hashes against plain readings of their rules; tests/e2e/test_hash_equals_{envoy,nginx} ask the real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from homing.core.hashing import Hosts, Ketama, Maglev, Ring, Table, minimum_ring_size

KEYS = [b"tenant/session-%d" % i for i in range(4000)]
EIGHT = [(f"gpu-{i}", 1) for i in range(8)]
UNEQUAL = [("gpu-a", 1), ("gpu-b", 2), ("gpu-c", 5)]

ids = st.text("abcdefgh0123456789.-:_", min_size=1, max_size=12)
# "a" and "a:" are one server to NGINX, and would not be two hosts in any table that is compared here
hosts = st.lists(st.tuples(ids, st.integers(1, 16)), max_size=9, unique_by=lambda host: host[0].removesuffix(":"))
keys = st.binary(max_size=40)


def ring(hosts: Hosts) -> Ring:
    """Of the size that homing gives it."""
    return Ring(hosts, minimum_ring_size([weight for _, weight in hosts]))


def tables(hosts: Hosts) -> tuple[Table, ...]:
    return ring(hosts), Maglev(hosts, 1009), Ketama(hosts)


def owners(table: Table, hosts: Hosts) -> list[str]:
    return [hosts[owner][0] for key in KEYS if (owner := table.owner(key)) is not None]


def moved(before: list[str], after: list[str], gone: str) -> float:
    """The share of the keys that lost their place although it is still there."""
    return sum(a != b for b, a in zip(before, after, strict=True) if b != gone) / len(before)


@pytest.mark.parametrize(
    ("weights", "size"),
    [
        ([], 1),
        ([1], 100),
        ([1, 1, 1], 300),
        ([1, 2, 5], 800),
        ([1] * 1000, 100_000),
        ([1] * 1310, 131_000),
        ([1] * 1311, 99 * 1311),
        ([128] * 1000, 128_000),
        ([128] * 1100, 128 * 1100),
    ],
)
def test_the_ring_has_a_hundred_points_for_each_unit_of_weight_until_there_are_too_many(weights: list[int], size: int):
    assert minimum_ring_size(weights) == size


# Sessions stay where an older version put them only as long as these stay.
@pytest.mark.parametrize(
    ("key", "on_ring", "on_maglev"),
    [
        (b"/a", "gpu-2", "gpu-4"),
        (b"/client-1", "gpu-5", "gpu-0"),
        (b"tenant/session-0", "gpu-4", "gpu-3"),
        (b"", "gpu-2", "gpu-1"),
    ],
)
def test_owners_stay_what_they_are(key: bytes, on_ring: str, on_maglev: str):
    assert [EIGHT[t.owner(key)][0] for t in (ring(EIGHT), Maglev(EIGHT))] == [on_ring, on_maglev]


@given(st.lists(ids, min_size=1, max_size=6, unique=True), st.integers(1, 40), keys)
def test_a_key_belongs_to_the_first_point_at_or_after_its_hash(names: list[str], points_each: int, key: bytes):
    points = {
        xxh64_intdigest(f"{name}_{i}".encode()): index for index, name in enumerate(names) for i in range(points_each)
    }
    hashed = xxh64_intdigest(key)
    first = min((point for point in points if point >= hashed), default=min(points))
    assert Ring([(name, 1) for name in names], points_each * len(names)).owner(key) == points[first]


@given(ids, st.integers(0, 99))
def test_a_key_that_hashes_onto_a_point_belongs_to_it(name: str, i: int):
    other = name + "x"
    assert Ring([(name, 1), (other, 1)], 200).owner(f"{name}_{i}".encode()) == 0


@given(st.lists(ids, min_size=1, max_size=6, unique=True), keys)
def test_maglev_is_listing_1_of_its_paper(names: list[str], key: bytes):
    size, table = 251, dict[int, int]()

    def preferences(name: bytes) -> Iterator[int]:
        offset, skip = xxh64_intdigest(name) % size, xxh64_intdigest(name, seed=1) % (size - 1) + 1
        return ((offset + n * skip) % size for n in range(size))

    turns = cycle([(names.index(name), preferences(name.encode())) for name in sorted(names)])
    while len(table) < size:
        index, slots = next(turns)
        table[next(slot for slot in slots if slot not in table)] = index
    assert Maglev([(name, 1) for name in names], size).owner(key) == table[xxh64_intdigest(key) % size]


@pytest.mark.parametrize(("table", "most"), [(ring(EIGHT), 1.25), (Maglev(EIGHT), 1.09)], ids=["ring", "maglev"])
def test_equal_hosts_own_about_their_share(table: Table, most: float):
    counts = Counter(owners(table, EIGHT))
    mean = len(KEYS) / 8
    assert set(counts) == {name for name, _ in EIGHT}
    assert max(counts.values()) <= most * mean
    assert min(counts.values()) >= (2 - most) * mean


@pytest.mark.parametrize("table", [ring(UNEQUAL), Maglev(UNEQUAL)], ids=["ring", "maglev"])
def test_hosts_own_by_weight(table: Table):
    counts = Counter(owners(table, UNEQUAL))
    for name, weight in UNEQUAL:
        assert counts[name] / len(KEYS) == pytest.approx(weight / 8, rel=0.2)


@given(hosts, keys)
def test_a_walk_meets_each_host_once_and_the_owner_first(hosts: list[tuple[str, int]], key: bytes):
    for table in tables(hosts):
        walk = list(table.walk(key))
        assert walk[:1] == ([] if (owner := table.owner(key)) is None else [owner])
        assert sorted(walk) == list(range(len(hosts)))


@given(hosts.filter(len), keys)
def test_an_owner_is_a_host_and_always_the_same(hosts: list[tuple[str, int]], key: bytes):
    for one, other in zip(tables(hosts), tables(hosts), strict=True):
        assert one.owner(key) == other.owner(key)
        assert one.owner(key) in range(len(hosts))


@pytest.mark.parametrize("table", [Ring([], 1), Ring([], 100), Maglev([]), Ketama([])])
def test_no_hosts_own_nothing(table: Table):
    assert table.owner(b"key") is None
    assert list(table.walk(b"key")) == []


def test_one_host_owns_everything():
    for table in tables([("only", 7)]):
        assert {table.owner(key) for key in KEYS} == {0}
        assert list(table.walk(b"key")) == [0]


@pytest.mark.parametrize("gone", [name for name, _ in EIGHT])
def test_the_ring_moves_only_the_keys_of_a_host_that_leaves_the_pool(gone: str):
    """Membership changes the size too, so the others keep their points exactly; each key goes where a retry would."""
    left = [host for host in EIGHT if host[0] != gone]
    before, after = ring(EIGHT), ring(left)
    assert moved(owners(before, EIGHT), owners(after, left), gone) == 0
    for key in KEYS[:200]:
        walk = [EIGHT[index][0] for index in before.walk(key)]
        assert [left[index][0] for index in after.walk(key)] == [name for name in walk if name != gone]


def test_a_dead_host_moves_some_keys_of_the_others_since_the_ring_keeps_its_size():
    """What the design names as the ring's cost: 1 of 8 dead moves 21-23% of all keys where 12.5% must move."""
    left = EIGHT[1:]
    before, after = owners(ring(EIGHT), EIGHT), owners(Ring(left, 800), left)
    assert 0.05 < moved(before, after, "gpu-0") < 0.12


def test_maglev_moves_few_keys_of_the_others():
    left = EIGHT[1:]
    assert moved(owners(Maglev(EIGHT), EIGHT), owners(Maglev(left), left), "gpu-0") < 0.03


def test_the_order_of_hosts_decides_nothing_where_weights_are_equal():
    backwards = EIGHT[::-1]
    assert owners(ring(EIGHT), EIGHT) == owners(ring(backwards), backwards)
    assert owners(Maglev(EIGHT), EIGHT) == owners(Maglev(backwards), backwards)


def test_a_ring_is_never_larger_than_its_maximum():
    """Scaled down, every host keeps its share."""
    table = Ring(UNEQUAL, 8000, maximum_size=80)
    smaller = Ring(UNEQUAL, 80)
    assert owners(table, UNEQUAL) == owners(smaller, UNEQUAL)


@given(st.lists(st.tuples(ids, st.integers(1, 3)), min_size=1, max_size=5, unique_by=lambda host: host[0]), keys)
def test_ketama_chains_the_points_of_a_server(names: list[tuple[str, int]], key: bytes):
    hosts = [(f"{name}:80", weight) for name, weight in names]
    points: dict[int, int] = {}
    for index, (name, weight) in enumerate(names):
        last = 0
        for _ in range(160 * weight):
            last = crc32(name.encode() + b"\0" + b"80" + last.to_bytes(4, "little"))
            points.setdefault(last, index)
    first = min((point for point in points if point >= crc32(key)), default=min(points))
    assert Ketama(hosts).owner(key) == points[first]


def test_ketama_reads_a_port_only_behind_the_last_colon():
    """As NGINX splits the name of a server: `[::1]`, and a name without a port, are hosts as a whole."""
    names = [("gpu-a", 1), ("[::1]", 1), ("unix:/run/vllm.sock", 1), ("10.0.0.1:8000", 1)]
    bases = (b"gpu-a\0", b"[::1]\0", b"/run/vllm.sock\0", b"10.0.0.1\x008000")
    points = {point: index for index, base in enumerate(bases) for point in chain(base)}
    table = Ketama(names)
    for key in KEYS[:300]:
        first = min((point for point in points if point >= crc32(key)), default=min(points))
        assert table.owner(key) == points[first]


def test_names_of_one_host_and_port_are_one_server_to_ketama():
    table = Ketama([("b", 1), ("a", 1), ("a:", 1)])
    assert {table.owner(key) for key in KEYS} == {0, 1}
    assert {tuple(sorted(table.walk(key))) for key in KEYS[:50]} == {(0, 1)}


def chain(base: bytes) -> list[int]:
    found = [0]
    for _ in range(160):
        found.append(crc32(base + found[-1].to_bytes(4, "little")))
    return found[1:]


def test_ketama_moves_only_the_keys_of_a_server_that_leaves():
    hosts = [(f"10.0.0.{i}:8000", 1) for i in range(8)]
    left = hosts[1:]
    assert moved(owners(Ketama(hosts), hosts), owners(Ketama(left), left), hosts[0][0]) == 0
