"""One cell of the support matrix, and what its tests said. Kept in docs/support.json, from which the page is made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

E2E = (
    "tests/control/test_ads_envoy.py",
    "tests/e2e/test_affinity.py",
    "tests/e2e/test_dropin_validates.py",
    "tests/e2e/test_hash_equals_envoy.py",
)
"""With real Envoy: configuration and fragments are not refused, the hash is the same, sessions stay, it fails open."""
UNITS = ("tests/core", "tests/control", "tests/ext_proc", "tests/cli", "tests/sim", "tests/client")
SETS = {"e2e": E2E, "all": (*UNITS, *E2E)}


class Outcome(msgspec.Struct, frozen=True):
    """Versions in full. `tests`: a key of SETS. `commit`: what was tested; `on`: the day."""

    homing: str
    python: str
    envoy: str
    tests: str
    passed: int
    failed: int
    commit: str
    on: str

    @property
    def cell(self) -> tuple[str, str]:
        return self.python, self.envoy


class Engine(msgspec.Struct, frozen=True):
    """A vLLM that was there for real. `by`: the command; `page`: where the version stands that it wrote down."""

    vllm: str
    by: str
    page: str


class Matrix(msgspec.Struct, frozen=True):
    cells: tuple[Outcome, ...] = ()
    engines: tuple[Engine, ...] = ()

    def having(self, tested: Iterable[Outcome]) -> Matrix:
        """With these in the place of what their cells said before."""
        by_cell = {each.cell: each for each in (*self.cells, *tested)}
        return Matrix(tuple(sorted(by_cell.values(), key=_newest_first)), self.engines)


def read(path: Path) -> Matrix:
    return msgspec.json.decode(path.read_bytes(), type=Matrix) if path.exists() else Matrix()


def write(path: Path, matrix: Matrix) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(matrix), indent=1) + b"\n")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _newest_first(tested: Outcome) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(-n for n in numbers(tested.envoy)), numbers(tested.python)
