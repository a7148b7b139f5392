"""A skipped test is a failure where HOMING_CI is set, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
SKIPS = {
    "in the test": "import pytest\ndef test_it(): pytest.skip('no component')",
    "by a mark": "import pytest\n@pytest.mark.skip(reason='no component')\ndef test_it(): pass",
    "of the module": "import pytest\npytest.skip('no component', allow_module_level=True)",
    "by an import": "import pytest\npytest.importorskip('no_such_module_here')",
}
XFAIL = "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert False"
PASSED, FAILED, INTERRUPTED, NOTHING_RUN = 0, 1, 2, 5


def run(directory: Path, test: str, *, ci: bool) -> int:
    (directory / "conftest.py").write_text(CONFTEST.read_text())
    (directory / "test_it.py").write_text(test)
    env = {k: v for k, v in os.environ.items() if k != "HOMING_CI"} | ({"HOMING_CI": "1"} if ci else {})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(directory),
        "test_it.py",
    ]
    done = subprocess.run(command, cwd=directory, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return done.returncode


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_fails_in_ci(how: str, tmp_path: Path) -> None:
    assert run(tmp_path, SKIPS[how], ci=True) in (FAILED, INTERRUPTED)


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_is_allowed_elsewhere(how: str, tmp_path: Path) -> None:
    assert run(tmp_path, SKIPS[how], ci=False) in (PASSED, NOTHING_RUN)


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    assert run(tmp_path, XFAIL, ci=True) == PASSED
