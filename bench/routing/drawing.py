"""Draws the charts: run by the Python that has matplotlib, which homing does not need. `drawing.py DIRECTORY`.

Knows nothing of the rest: the JSON files are all that it reads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypedDict

PINNED = ("matplotlib==3.11.2",)
LATE_S = 0.15  # bench.routing.report has it too; a test holds them equal


class Figures(TypedDict):
    contender: str
    ttft_by_turn_s: list[float]
    times_s: list[float]
    in_flight: dict[str, list[int]]
    hits: list[float]
    generator_late_s: float
    replicas_late_s: float


class Report(TypedDict):
    workload: str
    load: float
    figures: list[Figures]


def main(directory: Path) -> None:
    for file in sorted(directory.glob("*.json")):
        report: Report = json.loads(file.read_text())
        told = [f for f in report["figures"] if max(f["generator_late_s"], f["replicas_late_s"]) <= LATE_S]
        report["figures"] = told
        if report["figures"]:
            _ttft(report, file.with_name(f"{file.stem}-ttft.png"))
            _loads(report, file.with_name(f"{file.stem}-load.png"))


def _ttft(report: Report, file: Path) -> None:
    """TTFT by turn, and the hit rate over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5))
    for one in report["figures"]:
        ours = one["contender"].startswith("homing")
        width, line = (2.2, "-") if ours else (1.0, "--")
        turns = one["ttft_by_turn_s"]
        left.plot(range(1, len(turns) + 1), turns, label=one["contender"], linewidth=width, linestyle=line)
        right.plot(one["times_s"], one["hits"], label=one["contender"], linewidth=width, linestyle=line)
    left.set(title="TTFT by turn, p90", xlabel="turn", ylabel="simulated seconds", yscale="log")
    for ticks in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
        ticks(ticker.StrMethodFormatter("{x:g}"))
    left.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    right.set(title="hit rate so far", xlabel="simulated seconds", ylim=(0, 1))
    right.legend(fontsize=7)
    figure.suptitle(f"{report['workload']}, load {report['load']:g}")
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    pyplot.close(figure)


def _loads(report: Report, file: Path) -> None:
    """Requests at each replica over time, a small chart for each contender."""
    from matplotlib import pyplot

    shown = report["figures"]
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    size = (3.5 * columns, 2.4 * rows + 0.6)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, one in zip(axes.flat, shown, strict=False):
        for name, counts in one["in_flight"].items():
            axis.plot(one["times_s"], counts, linewidth=1, label=name)
        axis.set_title(one["contender"], fontsize=8)
    axes.flat[0].legend(fontsize=6)
    figure.supxlabel("simulated seconds", fontsize=8)
    figure.suptitle(f"{report['workload']}, load {report['load']:g}: requests at each replica")
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    pyplot.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
