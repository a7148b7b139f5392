"""What the table of homes costs, by the number of sessions in it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from itertools import count
from multiprocessing import get_context

from bench.scale.curve import Curve
from bench.scale.sizes import Sizes
from bench.scale.timing import resident_bytes, seconds
from homing.core.session import Homes

NOW = 1.8e9
REPLICAS = [f"gpu-{i}" for i in range(1_000)]
PART = "sessions"
WORDS = 1_000
FIGURES: dict[str, tuple[str, float | None, str]] = {
    "memory of the table": ("MB", 1_000.0, "memory of one picker"),
    "look-up, the digest included": ("us", None, ""),
    "use, the digest included": ("us", None, ""),
    "taking in what another picker says of one": ("us", None, ""),
    "those of one replica found, as when it restarts": ("ms", 100.0, "so long it keeps a picker's requests waiting"),
}
"""Unit, bound and the reason of it, by name."""


def curves(sizes: Sizes) -> list[Curve]:
    taken: dict[str, list[tuple[int, float]]] = {what: [] for what in FIGURES}
    for number in sizes.sessions:
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # memory that was freed would be taken again
            for what, value in fresh.submit(figures, number, sizes.repeats).result().items():
                taken[what].append((number, value))
    return [
        Curve(PART, what, unit, "sessions", tuple(taken[what]), bound, because)
        for what, (unit, bound, because) in FIGURES.items()
    ]


def figures(number: int, repeats: int) -> dict[str, float]:
    """Of a table of so many sessions, by their names in FIGURES."""
    before = resident_bytes()
    homes = filled(number)
    memory = resident_bytes() - before
    numbers = count()

    def look_up() -> None:
        assert homes.get(digest(next(numbers) * 7919 % number), NOW) is not None

    def use() -> None:
        i = next(numbers) * 7919 % number
        homes.put(digest(i), REPLICAS[i % 1_000], NOW, REPLICAS[(i + 1) % 1_000], 4_000)

    words = homes.words_of([digest(i) for i in range(min(WORDS, number))], NOW)
    values = (
        memory / 1e6,
        seconds(look_up, repeats) * 1e6,
        seconds(use, repeats) * 1e6,
        seconds(lambda: homes.absorb(words, NOW), repeats) * 1e6 / len(words),
        seconds(lambda: homes.at(REPLICAS[0], NOW), repeats) * 1e3,
    )
    return dict(zip(FIGURES, values, strict=True))


def filled(number: int) -> Homes:
    homes = Homes(1800.0, number)
    for i in range(number):
        homes.put(digest(i), REPLICAS[i % 1_000], NOW, REPLICAS[(i + 1) % 1_000], 4_000)
    return homes


def digest(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()
