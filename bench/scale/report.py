"""The tables, the chart and the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf, isnan, log10
from xml.sax.saxutils import escape

import msgspec

from bench.scale.curve import Curve

WIDTH, HEIGHT, MARGIN = 460, 260, 46
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


class Report(msgspec.Struct, frozen=True):
    machine: str
    versions: list[str]
    curves: list[Curve]

    def parts(self) -> dict[str, list[Curve]]:
        """Curves that are counted by the same, together."""
        grouped: dict[str, list[Curve]] = {}
        for curve in self.curves:
            grouped.setdefault(f"{curve.part}, by {curve.by}", []).append(curve)
        return grouped

    def markdown(self) -> str:
        lines = [f"Machine: {self.machine}. {'; '.join(self.versions)}.", ""]
        for title, curves in self.parts().items():
            sizes = sorted({size for curve in curves for size, _ in curve.points})
            lines += [
                f"**{title}**",
                "",
                "| " + " | ".join(["", *(f"{size:,}" for size in sizes), "grows as", "fits to"]) + " |",
            ]
            lines.append("|---" * (len(sizes) + 3) + "|")
            for curve in curves:
                at = dict(curve.points)
                cells = [figure(at[size]) if size in at else "" for size in sizes]
                lines.append(
                    "| " + " | ".join([f"{curve.what}, {curve.unit}", *cells, growth(curve), fits(curve)]) + " |"
                )
            lines.append("")
        reasons = {f"{bound:g} {curve.unit}: {curve.because}" for curve in self.curves if (bound := curve.bound)}
        return "\n".join([*lines, "Bounds: " + "; ".join(sorted(reasons)) + "."]) + "\n"

    def html(self) -> str:
        """Self-contained."""
        charts = "".join(f"<h2>{escape(title)}</h2>{chart(curves)}" for title, curves in self.parts().items())
        style = "body{font:14px sans-serif;margin:2em;max-width:60em}svg{background:#fafafa}"
        head = f"<title>homing: how it grows</title><style>{style}</style>"
        return f'<!doctype html><meta charset="utf-8">{head}<h1>How it grows</h1><p>{escape(self.machine)}</p>{charts}'


def growth(curve: Curve) -> str:
    exponent = curve.exponent
    return "" if isnan(exponent) else f"n^{exponent:.2f}"


def fits(curve: Curve) -> str:
    if curve.bound is None:
        return ""
    size, largest = curve.fits_to, curve.points[-1][0]
    return f"> {largest:,}" if size == inf else f"**{round(size, -1):,.0f}**" if size > 100 else f"**{size:.0f}**"


def figure(number: float) -> str:
    """Three digits."""
    if number == 0:
        return "0"
    digits = max(0, 2 - floor(log10(abs(number))))
    return f"{number:,.{digits}f}"


def chart(curves: Sequence[Curve]) -> str:
    """An SVG with a line for each curve, both axes logarithmic; units are in the legend."""
    drawn = [(c, [(log10(x), log10(y)) for x, y in c.points if y > 0]) for c in curves]
    every = [point for _, points in drawn for point in points]
    if not every:
        return ""
    (left, right), (low, high) = [_span(axis) for axis in zip(*every, strict=True)]
    marks = []
    for power in range(left, right + 1):
        x = _at(power, left, right, MARGIN, WIDTH - MARGIN)
        marks.append(f'<text x="{x:.0f}" y="{HEIGHT - 16}" text-anchor="middle">{10**power:,}</text>')
    for power in range(low, high + 1):
        y = _at(power, low, high, HEIGHT - MARGIN, MARGIN / 2)
        marks.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        marks.append(f'<text x="{MARGIN - 6}" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g}</text>')
    for number, (curve, points) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        places = " ".join(
            f"{_at(x, left, right, MARGIN, WIDTH - MARGIN):.1f},{_at(y, low, high, HEIGHT - MARGIN, MARGIN / 2):.1f}"
            for x, y in points
        )
        marks.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        name = escape(f"{curve.what}, {curve.unit}")
        marks.append(f'<text x="{WIDTH}" y="{30 + 18 * number}" fill="{colour}">{name}</text>')
    return f'<svg width="{WIDTH + 360}" height="{HEIGHT}" font-size="12" role="img">{"".join(marks)}</svg>'


def _span(axis: Sequence[float]) -> tuple[int, int]:
    low = floor(min(axis))
    return low, max(low + 1, -floor(-max(axis)))


def _at(value: float, low: int, high: int, start: float, end: float) -> float:
    return start + (value - low) / (high - low) * (end - start)
