"""Prints the page docs/movement.md, or writes it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.movement.changes import rows
from bench.movement.page import page
from homing.core.movement import SAMPLE, sample

SIZES = (3, 8, 64)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.movement", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page here")
    parser.add_argument("--keys", type=int, default=SAMPLE)
    options = parser.parse_args()
    text = page(rows(SIZES, sample(options.keys)), options.keys)
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
