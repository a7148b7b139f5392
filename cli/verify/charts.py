"""Charts as SVG inside the page: no script, nothing from elsewhere. Coordinates only; the page's template draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from homing.core.verify.comparison import EngineRow, Hits, Times, TurnRow

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 40
NAME = 22
"""Characters of a replica's name below its bars."""


@dataclass(frozen=True, slots=True)
class Tick:
    """At `at` (pixels) stands `text`."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """`kind`: the class in the page's style."""

    kind: str
    name: str
    points: tuple[Point, ...]

    @property
    def path(self) -> str:
        return " ".join(f"{p.x:.1f},{p.y:.1f}" for p in self.points)


@dataclass(frozen=True, slots=True)
class Bar:
    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    label: str
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    lines: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def ttft(rows: Sequence[TurnRow]) -> Chart:
    """Medians and p90 of both runs, by turn, in milliseconds."""
    top = _round_up(max(max(r.scattered.p90_s, r.affinity.p90_s) for r in rows) * 1000)
    step = (WIDTH - LEFT - RIGHT) / max(len(rows), 1)
    xs = [LEFT + step * (i + 0.5) for i in range(len(rows))]

    def line(kind: str, name: str, values: Sequence[float]) -> Line:
        points = zip(xs, values, rows, strict=True)
        return Line(kind, name, tuple(Point(x, _y(v, top), f"turn {r.turn}, {name}: {v:.1f} ms") for x, v, r in points))

    def ms(times: Sequence[Times], attribute: str) -> list[float]:
        return [(t.median_s if attribute == "p50" else t.p90_s) * 1000 for t in times]

    scattered, affinity = [r.scattered for r in rows], [r.affinity for r in rows]
    lines = (
        line("scattered p90", "round robin p90", ms(scattered, "p90")),
        line("affinity p90", "affinity p90", ms(affinity, "p90")),
        line("scattered", "round robin p50", ms(scattered, "p50")),
        line("affinity", "affinity p50", ms(affinity, "p50")),
    )
    ticks = tuple(Tick(x, str(r.turn)) for x, r in zip(xs, rows, strict=True))
    return Chart("TTFT by turn, ms", ticks, _ticks(top, ""), lines=lines)


def hit_rates(rows: Sequence[EngineRow]) -> Chart:
    """Of each replica in both runs, in per cent."""
    rates = [100 * (hits.rate or 0) if hits is not None else 0.0 for row in rows for hits in _both(row)]
    return _grouped("Prefix-cache hit rate by replica, %", rows, rates, 100, "%")


def requests(rows: Sequence[EngineRow]) -> Chart:
    """Served by each replica in both runs."""
    counts = [hits.requests if hits is not None else 0.0 for row in rows for hits in _both(row)]
    return _grouped("Requests by replica", rows, counts, _round_up(max([*counts, 1])), "")


def _both(row: EngineRow) -> tuple[Hits | None, Hits | None]:
    return row.scattered, row.affinity


def _grouped(label: str, rows: Sequence[EngineRow], values: Sequence[float], top: float, unit: str) -> Chart:
    """Two bars for each row; `values`: both of each row, one row after the other."""
    step = (WIDTH - LEFT - RIGHT) / max(len(rows), 1)
    width = min(48.0, step * 0.35)
    bars = []
    for i, value in enumerate(values):
        row, side = divmod(i, 2)
        x = LEFT + step * (row + 0.5) - width * (1 - side)
        kind, name = (("scattered", "round robin"), ("affinity", "affinity"))[side]
        y = _y(value, top)
        bars.append(Bar(kind, x, y, width - 2, HEIGHT - BOTTOM - y, f"{rows[row].engine}, {name}: {value:.0f}{unit}"))
    ticks = tuple(Tick(LEFT + step * (i + 0.5), row.engine[:NAME]) for i, row in enumerate(rows))
    return Chart(label, ticks, _ticks(top, unit), bars=tuple(bars))


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _ticks(top: float, unit: str) -> tuple[Tick, ...]:
    return tuple(Tick(_y(top * i / 4, top), f"{top * i / 4:g}{unit}") for i in range(5))


def _round_up(value: float) -> float:
    """To 1, 2, 4 or 8 times a power of ten, so that quarters of it are round."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value)
