"""Measures how homing grows, one part at a time, and prints the tables; `--json` and `--html` write them too.

    python -m bench.scale [--part NAME ...] [--json FILE] [--html FILE]

Runs on one core but for the fan-out, whose clients are a process of their own. Ten million sessions take 3 GB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.gateway.report import machine, versions
from bench.scale import exchange, fanout, membership, placing, sessions
from bench.scale.curve import Curve
from bench.scale.report import Report
from bench.scale.sizes import FULL, SMOKE, Sizes

PARTS: dict[str, Callable[[Sizes], list[Curve]]] = {
    "placement": placing.curves,
    "sessions": sessions.curves,
    "membership": membership.curves,
    "exchange": exchange.curves,
    "fan-out": fanout.curves,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these")
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--html", type=Path)
    given = parser.parse_args()
    for file in (given.json, given.html):
        if file is not None:  # what was measured for minutes must not be lost for want of it
            file.parent.mkdir(parents=True, exist_ok=True)
    sizes = SMOKE if given.smoke else FULL
    curves = [curve for part in given.part or PARTS for curve in PARTS[part](sizes)]
    report = Report(machine(), versions(), curves)
    sys.stdout.write(report.markdown())
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    if given.html is not None:
        given.html.write_text(report.html())


if __name__ == "__main__":
    main()
