"""Tables of 1,000 replicas: building one, and finding an owner in it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from homing.core.hashing import Ketama, Maglev, Ring, Table, minimum_ring_size
from homing.core.placement.minting import mint

HOSTS = [(f"10.0.{i // 250}.{i % 250}:8000", 1) for i in range(1000)]
TABLES: dict[str, Callable[[], Table]] = {
    "ring": lambda: Ring(HOSTS, minimum_ring_size([1] * 1000)),
    "maglev": lambda: Maglev(HOSTS),
    "ketama": lambda: Ketama(HOSTS),
}


@pytest.mark.parametrize("name", TABLES)
def test_build(benchmark: BenchmarkFixture, name: str) -> None:
    benchmark(TABLES[name])


@pytest.mark.parametrize("name", TABLES)
def test_owner(benchmark: BenchmarkFixture, name: str) -> None:
    table, keys = TABLES[name](), cycle([b"tenant/session-%d" % i for i in range(10_000)])
    benchmark(lambda: table.owner(next(keys)))


def test_mint_for_eight(benchmark: BenchmarkFixture) -> None:
    table, bases = Ring(HOSTS[:8], 800), cycle([b"%032x" % i for i in range(10_000)])
    benchmark(lambda: mint(next(bases), b"tenant/", table, 3))
