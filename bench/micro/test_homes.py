"""The table of homes at its full size: time of each operation, and memory. Run by hand: `pytest bench/micro`."""

from __future__ import annotations

import random
import tracemalloc
from itertools import count, cycle

from pytest_benchmark.fixture import BenchmarkFixture

from homing.core.chains import Chains
from homing.core.history import History
from homing.core.session import Homes

SESSIONS = 200_000
NOW = 1.8e9
REPLICAS = [f"gpu-{i}" for i in range(8)]
Use = tuple[bytes, str, str]


def uses(seed: int) -> list[Use]:
    chance = random.Random(seed)
    homes = (chance.sample(REPLICAS, 2) for _ in range(SESSIONS))
    return [(chance.randbytes(16), home, heir) for home, heir in homes]


def full(sessions: list[Use]) -> Homes:
    homes = Homes(1800.0, SESSIONS)
    for i, (digest, home, heir) in enumerate(sessions):
        homes.put(digest, home, NOW + i / SESSIONS, heir, i)
    return homes


def shuffled(sessions: list[Use]) -> list[Use]:
    return random.Random(0).sample(sessions, len(sessions))


def test_look_up(benchmark: BenchmarkFixture) -> None:
    homes, order = full(sessions := uses(1)), cycle(shuffled(sessions))
    benchmark(lambda: homes.get(next(order)[0], NOW + 2))


def test_touch(benchmark: BenchmarkFixture) -> None:
    homes, order = full(sessions := uses(1)), cycle(shuffled(sessions))

    def touch() -> None:
        digest, home, heir = next(order)
        homes.put(digest, home, NOW + 2, heir, 4000)

    benchmark(touch)


def test_a_new_session_where_the_longest_idle_has_to_leave(benchmark: BenchmarkFixture) -> None:
    homes, order = full(uses(1)), cycle(uses(2))
    homes.journal()

    def add() -> None:
        digest, home, heir = next(order)
        homes.put(digest, home, NOW + 2, heir, 4000)

    benchmark(add)


def test_a_thousand_words_of_a_sibling(benchmark: BenchmarkFixture) -> None:
    told, hearing = full(sessions := uses(1)), full(sessions)
    words = told.words_of([digest for digest, _, _ in sessions[:1000]], NOW + 2)
    benchmark(lambda: hearing.absorb(words, NOW + 2))


def test_memory(benchmark: BenchmarkFixture) -> None:
    """Digests included. `turned_over`: after as many sessions again have come and gone."""
    tracemalloc.start()
    homes = full(uses(1))
    filled = tracemalloc.get_traced_memory()[0]
    for digest, home, heir in uses(2):
        homes.put(digest, home, NOW + 2, heir, 4000)
    turned_over = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    benchmark.extra_info |= {"filled_mb": filled / 1e6, "turned_over_mb": turned_over / 1e6}
    print(f"\n{SESSIONS} sessions: {filled / 1e6:.1f} MB, turned over {turned_over / 1e6:.1f} MB")  # noqa: T201
    benchmark(len, homes)


def test_a_prompt_put_into_a_full_table_of_prompts(benchmark: BenchmarkFixture) -> None:
    table, numbers = Chains(1e9, 100_000), count()

    def put() -> None:
        name = b"%024d" % next(numbers)
        table.put(History(name, (), name + b"u", (), name + b"t", ()), "gpu-0", 0.0)

    for _ in range(50_000):
        put()
    benchmark(put)
