"""For all tests: in CI a skip is a failure, and a test of whole processes may leave none of them, nor a file."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

# Hypothesis' own limit of 200 ms an example measures the machine's load, not the code.
settings.register_profile("homing", deadline=None)
settings.load_profile("homing")

CI = "HOMING_CI"
MARK = "HOMING_TEST_MARK"
ENDING_S = 5.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get(CI) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure where {CI} is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if os.environ.get(CI) and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure where {CI} is set: {report.longrepr}"
    return report


@dataclass(frozen=True, slots=True)
class Traces:
    """What the processes that a test starts leave behind: they inherit the mark, and `directory` as TMPDIR."""

    mark: str
    directory: Path

    def processes(self) -> dict[int, str]:
        """The living processes with the mark, by id, with their command lines."""
        own = os.getpid()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != own and self._is_marked(entry):
                found[int(entry.name)] = self._command_line(entry)
        return found

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*"))

    def _is_marked(self, entry: Path) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or not ours
            return False

    @staticmethod
    def _command_line(entry: Path) -> str:
        try:
            return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return "(ended)"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traces]:
    """After the test no marked process may live, once a bounded time has passed, and no file may be left."""
    tmp_path_factory.getbasetemp()  # pytest's own place, chosen before TMPDIR is another
    directory = Path(tempfile.mkdtemp(prefix="hm", dir="/tmp"))  # short: unix sockets lie in it
    traces = Traces(uuid.uuid4().hex, directory)
    monkeypatch.setenv(MARK, traces.mark)
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    try:
        yield traces
        deadline = time.monotonic() + ENDING_S
        while (left := traces.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
        assert traces.files() == []
    finally:
        shutil.rmtree(directory, ignore_errors=True)
