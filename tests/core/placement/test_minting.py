"""Ids whose hash is the replica we want."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from homing.core.hashing import Ketama, Maglev, Ring
from homing.core.placement.minting import MAX_TRIES, SHARD_TRIES, Shard, looks_minted, mint
from homing.core.seal import Seal

HOSTS = [(f"gpu-{i}", 1) for i in range(8)]
BASE = b"7f1c0d52-5b0e-4c6e-9d3c-1f7a5a1f2b3c"


class Turns:
    """The n-th key asked for belongs to host n."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def owner(self, key: bytes) -> int | None:
        self.asked.append(key)
        return len(self.asked) - 1

    def walk(self, key: bytes) -> Iterator[int]:
        raise AssertionError("minting needs owners only")


@pytest.mark.parametrize("table", [Ring(HOSTS, 800), Maglev(HOSTS), Ketama(HOSTS)], ids=["ring", "maglev", "ketama"])
@pytest.mark.parametrize("host", range(8))
def test_an_id_for_every_host(table: Ring | Maglev | Ketama, host: int):
    minted = mint(BASE, b"tenant/", table, host)
    assert minted is not None
    assert minted.startswith(BASE + b"-")
    assert table.owner(b"tenant/" + minted) == host


def test_few_tries_are_enough():
    """Seen in the design's study: about as many as there are hosts, on average."""
    table = Ring(HOSTS, 800)
    tries = [int(mint(b"base-%d" % i, b"/", table, i % 8).rpartition(b"-")[2], 16) + 1 for i in range(400)]
    assert sum(tries) / len(tries) < 10
    assert max(tries) < 100


def test_the_first_id_that_fits_is_taken_and_counted_in_hexadecimal():
    table = Turns()
    assert mint(b"b", b"t/", table, 11) == b"b-b"
    assert table.asked == [b"t/b-%x" % n for n in range(12)]


def test_a_host_that_owns_nothing_gives_no_id_after_bounded_tries():
    table = Turns()
    assert mint(BASE, b"/", table, -1) is None
    assert len(table.asked) == MAX_TRIES
    assert mint(BASE, b"/", Turns(), 5, max_tries=5) is None
    assert mint(BASE, b"/", Ring([], 1), 0) is None


@pytest.mark.parametrize("picker", range(4))
def test_an_id_that_fits_the_replica_and_the_picker(picker: int):
    table, shard = Ring(HOSTS, 800), Shard(Maglev([(f"picker-{i}", 1) for i in range(4)]), picker)
    for host in range(8):
        minted = mint(BASE, b"tenant/", table, host, shard=shard)
        assert minted is not None
        key = b"tenant/" + minted
        assert (table.owner(key), shard.table.owner(key)) == (host, picker)


def test_an_id_that_fits_no_picker_in_time_fits_the_replica():
    nobody, table = Shard(Ring([], 1), 0), Ring(HOSTS, 800)
    assert mint(BASE, b"/", table, 3, shard=nobody) == mint(BASE, b"/", table, 3)
    assert mint(BASE, b"/", Turns(), SHARD_TRIES + 5, shard=nobody) == b"%s-%x" % (BASE, SHARD_TRIES + 5)
    assert mint(BASE, b"/", Turns(), -1, shard=nobody) is None


def test_a_signed_id_looks_minted_too():
    signed = Seal((b"key",), b"session", 60.0).sign(BASE + b"-1f", b"", 1.8e9)
    assert looks_minted(BASE + b"-1f")
    assert looks_minted(signed)
    assert not looks_minted(signed[:-1])
