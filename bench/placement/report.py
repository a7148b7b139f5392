"""Results as a table, and how far each contender is from the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median

from bench.placement.world import Result

Results = Mapping[str, Mapping[str, Result]]
"""Workload -> contender -> what came of it."""


def markdown(results: Results) -> str:
    """TTFT p90 / p99 in seconds, the best of each workload in bold."""
    contenders = list(dict.fromkeys(name for row in results.values() for name in row))
    lines = [
        "| workload | " + " | ".join(contenders) + " |",
        "|---" * (len(contenders) + 1) + "|",
    ]
    for workload, row in results.items():
        best90, best99 = (min(getattr(r, q) for r in row.values()) for q in ("p90", "p99"))
        cells = [f"{_cell(row[c].p90, best90)} / {_cell(row[c].p99, best99)}" if c in row else "" for c in contenders]
        lines.append(f"| {workload} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def behind(results: Results, ours: Sequence[str]) -> dict[str, dict[str, float]]:
    """How many times the best of the others each of ours has, by workload: the geometric mean over p90 and p99."""
    told: dict[str, dict[str, float]] = {}
    for workload, row in results.items():
        others = [r for name, r in row.items() if name not in ours]
        if not others:
            continue
        best90, best99 = min(r.p90 for r in others), min(r.p99 for r in others)
        told[workload] = {
            name: ((row[name].p90 / best90) * (row[name].p99 / best99)) ** 0.5 for name in ours if name in row
        }
    return told


Ratios = tuple[float, float]
"""TTFT's p90 and p99 against the best of the others."""


def against_the_best(row: Mapping[str, Result], ours: Sequence[str]) -> dict[str, Ratios]:
    """Of one workload and one seed."""
    others = [r for name, r in row.items() if name not in ours]
    best90, best99 = min(r.p90 for r in others), min(r.p99 for r in others)
    return {name: (row[name].p90 / best90, row[name].p99 / best99) for name in ours if name in row}


def spread(ratios: Mapping[str, Mapping[str, Sequence[Ratios]]]) -> str:
    """Workload -> contender -> the ratios of each seed, as a table: the median, and in brackets the least and most."""
    contenders = list(dict.fromkeys(name for row in ratios.values() for name in row))
    lines = ["| workload | " + " | ".join(contenders) + " |", "|---" * (len(contenders) + 1) + "|"]
    for workload, row in ratios.items():
        cells = [" / ".join(_middle([pair[i] for pair in row[name]]) for i in (0, 1)) for name in contenders]
        lines.append(f"| {workload} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _middle(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def plain(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """For JSON."""
    return {workload: {name: asdict(result) for name, result in row.items()} for workload, row in results.items()}


def _cell(value: float, best: float) -> str:
    text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return f"**{text}**" if value <= best * 1.05 else text
