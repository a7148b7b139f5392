"""The support matrix: the page says what was tested, and the newest cell is what the lock files pin."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from bench.support.cells import SETS, Matrix, Outcome, read, write
from bench.support.environment import ROOT, locked_envoy
from bench.support.page import page
from homing.cli.envoy_binary import OLDEST

DOCS = ROOT / "docs"
MATRIX = read(DOCS / "support.json")
CELL = Outcome("0.1.0", "3.11.7", "1.40.0", "e2e", 3, 0, "abc", "2026-11-29")


def test_the_page_is_made_of_what_was_tested() -> None:
    assert (DOCS / "support.md").read_text() == page(MATRIX, locked_envoy())


def test_nothing_is_claimed_that_failed() -> None:
    assert [cell for cell in MATRIX.cells if cell.failed or not cell.passed] == []


def test_no_envoy_is_tried_that_homing_refuses() -> None:
    assert [cell.envoy for cell in MATRIX.cells if tuple(map(int, cell.envoy.split(".")))[:2] < OLDEST] == []


def test_an_engine_s_version_is_what_its_page_says() -> None:
    assert MATRIX.engines
    for engine in MATRIX.engines:
        assert re.search(rf"\b{re.escape(engine.vllm)}\b", (DOCS / engine.page).read_text())


def test_the_tests_that_are_named_exist() -> None:
    assert [path for paths in SETS.values() for path in paths if not (ROOT / path).exists()] == []


def test_a_cell_that_is_tested_again_replaces_itself_and_the_newest_envoy_comes_first(tmp_path: Path) -> None:
    again = msgspec.structs.replace(CELL, passed=4)
    other = msgspec.structs.replace(CELL, envoy="1.9.1")
    matrix = Matrix().having([other, CELL]).having([again])
    assert matrix.cells == (again, other)
    write(tmp_path / "support.json", matrix)
    assert read(tmp_path / "support.json") == matrix


def test_failures_are_said() -> None:
    said = page(Matrix((msgspec.structs.replace(CELL, failed=1),)), "1.40.0")
    assert "| 0.1.0 | 1.40.0 | 3.11.7 | 1 of 4 failed |" in said
