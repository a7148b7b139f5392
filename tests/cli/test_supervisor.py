"""The supervisor over real processes: small stand-ins that say by files how far they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from homing.cli import tether
from homing.cli.child import LINE_BYTES_MAX, Child, Probe, fixed
from homing.cli.restarts import Backoff
from homing.cli.supervisor import Supervisor, Timing

WAIT_S = 15.0
PYTHON = (sys.executable, "-I", "-S", "-c")
SLEEP = "import time; time.sleep(600)"
TOUCH_AND_SLEEP = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(600)"
IGNORE_SIGTERM = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "open(sys.argv[1], 'w').close(); time.sleep(600)"
)
# On SIGTERM: adds a line to a file, then ends after a moment.
NOTE_SIGTERM = """
import signal, sys, time
def note(*_):
    open(sys.argv[2], 'a').write(sys.argv[3] + ' asked\\n')
    time.sleep(0.2)
    open(sys.argv[2], 'a').write(sys.argv[3] + ' ended\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, note)
open(sys.argv[1], 'w').close()
time.sleep(600)
"""


class Processes(Protocol):
    """The fixture `traces`."""

    def processes(self) -> dict[int, str]: ...


@dataclass
class Recorder:
    """Keeps what is reported."""

    said: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.said.append(line)

    def child_line(self, name: str, line: str) -> None:
        self.lines.append((name, line))

    def progress(self, ready: int, of: int, waiting: Sequence[str]) -> None:
        pass


@dataclass
class Run:
    supervisor: Supervisor
    reports: Recorder
    ready: asyncio.Event
    task: asyncio.Task[str | None]

    async def finish(self) -> str | None:
        async with asyncio.timeout(WAIT_S):
            return await self.task


@contextlib.asynccontextmanager
async def running(*children: Child, timing: Timing | None = None) -> AsyncIterator[Run]:
    reports, ready = Recorder(), asyncio.Event()
    supervisor = Supervisor(
        children, reports, timing=timing or Timing(), backoff=Backoff(first_s=0.2), chance=lambda: 0.0
    )
    task = asyncio.create_task(supervisor.run(ready.set))
    try:
        yield Run(supervisor, reports, ready, task)
    finally:
        supervisor.stop()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 (other processes set no event)
            await asyncio.sleep(0.01)


async def reached(event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT_S):
        await event.wait()


def exists(path: Path) -> Probe:
    async def probe() -> bool:
        return path.exists()

    return probe


async def at_once() -> bool:
    return True


async def never() -> bool:
    return False


def script(code: str, *arguments: object) -> tuple[str, ...]:
    return (*PYTHON, code, *map(str, arguments))


def touching(name: str, file: Path, code: str = TOUCH_AND_SLEEP, *arguments: object, **options: object) -> Child:
    """A child that is ready when it has made `file`."""
    return Child(name, fixed(*script(code, file, *arguments)), exists(file), **options)  # type: ignore[arg-type]


async def test_all_are_started_and_then_ready_once(traces: Processes, tmp_path: Path) -> None:
    async with running(touching("a", tmp_path / "a"), touching("b", tmp_path / "b")) as run:
        await reached(run.ready)
        assert sorted(run.supervisor.pids()) == ["a", "b"]
        assert sorted(traces.processes()) == sorted(run.supervisor.pids().values())
        run.supervisor.stop()
        assert await run.finish() is None
    assert run.reports.said == []
    assert traces.processes() == {}


async def test_a_child_starts_only_after_those_it_needs_are_ready(traces: Processes, tmp_path: Path) -> None:
    slow = "import sys, time; time.sleep(0.4); open(sys.argv[1], 'w').close(); time.sleep(600)"
    seen = (
        "import os, sys, time; print(os.path.exists(sys.argv[2]), flush=True); open(sys.argv[1], 'w'); time.sleep(600)"
    )
    second = touching("second", tmp_path / "b", seen, tmp_path / "a", after=("first",))
    async with running(second, touching("first", tmp_path / "a", slow)) as run:
        await reached(run.ready)
    assert run.reports.lines == [("second", "True")]


async def test_children_that_need_nobody_start_together(traces: Processes, tmp_path: Path) -> None:
    """Each becomes ready only while the other runs."""
    mutual = (
        "import os, sys, time; open(sys.argv[2], 'w').close()\n"
        "while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
        "open(sys.argv[1], 'w').close(); time.sleep(600)"
    )
    a, b = tmp_path / "a-runs", tmp_path / "b-runs"
    async with running(touching("a", tmp_path / "a", mutual, a, b), touching("b", tmp_path / "b", mutual, b, a)) as run:
        await reached(run.ready)


async def test_an_optional_child_is_not_waited_for(traces: Processes, tmp_path: Path) -> None:
    async with running(
        Child("late", fixed(*script(SLEEP)), never, required=False), touching("a", tmp_path / "a")
    ) as run:
        await reached(run.ready)


async def test_each_child_heads_its_own_process_group(traces: Processes, tmp_path: Path) -> None:
    async with running(touching("a", tmp_path / "a")) as run:
        await reached(run.ready)
        pid = run.supervisor.pids()["a"]
        assert (os.getpgid(pid), os.getsid(pid)) == (pid, pid)


async def test_a_killed_child_is_restarted_and_said_so(traces: Processes, tmp_path: Path) -> None:
    async with running(touching("picker-0", tmp_path / "a")) as run:
        await reached(run.ready)
        before = run.supervisor.pids()["picker-0"]
        os.kill(before, signal.SIGKILL)
        await until(lambda: len(run.reports.said) == 2)
        assert run.supervisor.pids()["picker-0"] != before
    assert run.reports.said[0] == "picker-0 ended (signal 9), restarting in 0.2 s"
    assert run.reports.said[1].startswith("picker-0 is ready again after ")


async def test_a_child_that_ends_by_itself_is_restarted_too(traces: Processes) -> None:
    brief = Child("brief", fixed(*script("pass")), at_once)
    async with running(brief, Child("a", fixed(*script(SLEEP)), at_once)) as run:
        await until(lambda: "brief ended (exit status 0), restarting in 0.4 s" in run.reports.said)
    assert run.reports.said[0] == "brief ended (exit status 0), restarting in 0.2 s"


async def test_arguments_are_asked_for_before_each_start(traces: Processes) -> None:
    starts = iter(("first", "second", "third"))

    async def argv() -> Sequence[str]:
        return script("import sys; print(sys.argv[1])", next(starts, "later"))

    async with running(Child("a", argv, never)) as run:
        await until(lambda: len(run.reports.lines) >= 2)
    assert run.reports.lines[:2] == [("a", "first"), ("a", "second")]


async def test_arguments_that_cannot_be_made_count_as_an_end(traces: Processes) -> None:
    attempts = iter((OSError(28, "No space left on device"),))

    async def argv() -> Sequence[str]:
        for error in attempts:
            raise error
        return script(SLEEP)

    async with running(Child("envoy", argv, at_once)) as run:
        await reached(run.ready)
    assert run.reports.said == [
        "envoy ended (cannot start: [Errno 28] No space left on device), restarting in 0.2 s",
    ]


async def test_a_program_that_does_not_exist_is_said(traces: Processes) -> None:
    async with running(Child("envoy", fixed("/no/such/program"), never)) as run:
        await until(lambda: bool(run.reports.said))
    assert run.reports.lines[0] == ("envoy", "cannot run /no/such/program: No such file or directory")
    assert run.reports.said[0] == "envoy ended (exit status 127), restarting in 0.2 s"


async def test_output_is_passed_on_by_line_with_the_name(traces: Processes) -> None:
    code = (
        "import os, sys, time\n"
        "os.write(1, b'out\\r\\n'); os.write(2, b'err'); time.sleep(0.1); os.write(2, b'or\\n\\xff\\n\\n')\n"
        "os.write(1, b'end')\n"
    )
    async with running(Child("a", fixed(*script(code)), never)) as run:
        await until(lambda: len(run.reports.lines) >= 5)
    assert run.reports.lines[:5] == [("a", "out"), ("a", "error"), ("a", "\ufffd"), ("a", ""), ("a", "end")]


async def test_a_line_without_end_is_passed_on_in_pieces(traces: Processes) -> None:
    size = 3 * LINE_BYTES_MAX
    code = f"import os, time\nn = {size}\nwhile n: n -= os.write(1, b'x' * n)\ntime.sleep(600)"
    async with running(Child("a", fixed(*script(code)), at_once)) as run:
        await until(lambda: sum(len(line) for _, line in run.reports.lines) > size - LINE_BYTES_MAX)
    assert max(len(line) for _, line in run.reports.lines) < 2 * LINE_BYTES_MAX
    assert sum(len(line) for _, line in run.reports.lines) == size


async def test_those_that_end_first_are_gone_before_the_others_are_asked(traces: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    picker = touching("picker", tmp_path / "p", NOTE_SIGTERM, log, "picker")
    envoy = touching("envoy", tmp_path / "e", NOTE_SIGTERM, log, "envoy", ends_first=True)
    async with running(picker, envoy) as run:
        await reached(run.ready)
    assert log.read_text().splitlines() == ["envoy asked", "envoy ended", "picker asked", "picker ended"]


async def test_one_that_ignores_sigterm_is_killed_after_the_grace(traces: Processes, tmp_path: Path) -> None:
    async with running(touching("deaf", tmp_path / "a", IGNORE_SIGTERM), timing=Timing(stop_s=0.5)) as run:
        await reached(run.ready)
        began = time.monotonic()
        run.supervisor.stop()
        assert await run.finish() is None
        assert time.monotonic() - began >= 0.5
    assert traces.processes() == {}


async def test_a_second_stop_does_not_wait(traces: Processes, tmp_path: Path) -> None:
    async with running(touching("deaf", tmp_path / "a", IGNORE_SIGTERM), timing=Timing(stop_s=600)) as run:
        await reached(run.ready)
        run.supervisor.stop()
        await asyncio.sleep(0.1)
        run.supervisor.stop()
        assert await run.finish() is None


async def test_a_frozen_child_ends(traces: Processes, tmp_path: Path) -> None:
    async with running(touching("frozen", tmp_path / "a"), timing=Timing(stop_s=600)) as run:
        await reached(run.ready)
        os.kill(run.supervisor.pids()["frozen"], signal.SIGSTOP)
        run.supervisor.stop()
        assert await run.finish() is None


async def test_processes_that_a_child_started_end_with_it(traces: Processes, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1], 'w').close(); time.sleep(600)"
    )
    async with running(touching("parent", tmp_path / "a", code)) as run:
        await reached(run.ready)
        await until(lambda: len(traces.processes()) == 2)
        run.supervisor.stop()
        await run.finish()
        await until(lambda: traces.processes() == {})


async def test_a_process_that_left_the_group_with_the_output_does_not_hold_up_the_restart(
    traces: Processes, tmp_path: Path
) -> None:
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0: os.setsid(); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)\n"
    )
    pid = tmp_path / "pid"
    async with running(Child("a", fixed(*script(code, pid)), never)) as run:
        await until(lambda: bool(run.reports.said))
        run.supervisor.stop()
        await run.finish()
    for left in traces.processes():  # it is nobody's child now
        os.kill(left, signal.SIGKILL)
    assert run.reports.said[0] == "a ended (exit status 0), restarting in 0.2 s"


async def test_not_ready_in_time_names_the_child_and_not_those_behind_it(traces: Processes) -> None:
    stuck = Child("control", fixed(*script(SLEEP)), never)
    behind = Child("envoy", fixed(*script(SLEEP)), at_once, after=("control",))
    async with running(stuck, behind, timing=Timing(start_s=0.5)) as run:
        assert await run.finish() == "control not ready after 0.5 s"
        assert not run.ready.is_set()
    assert traces.processes() == {}


async def test_wrong_configuration_ends_the_start(traces: Processes) -> None:
    wrong = Child("control", fixed(*script("import sys; sys.exit(2)")), never)
    async with running(wrong, Child("a", fixed(*script(SLEEP)), at_once)) as run:
        assert await run.finish() == "control ended (exit status 2): wrong usage or configuration"
    assert traces.processes() == {}


async def test_stopped_while_starting_ends_all(traces: Processes) -> None:
    async with running(Child("a", fixed(*script(SLEEP)), never)) as run:
        await until(lambda: bool(run.supervisor.pids()))
        run.supervisor.stop()
        assert await run.finish() is None
        assert not run.ready.is_set()
    assert traces.processes() == {}


async def test_stopped_before_anything_runs_ends_all(traces: Processes) -> None:
    async with running(*(Child(str(i), fixed(*script(SLEEP)), at_once) for i in range(5))) as run:
        await asyncio.sleep(0)  # the children's tasks have begun; their processes are being made
        run.supervisor.stop()
        assert await run.finish() is None
    assert traces.processes() == {}


async def test_a_bug_in_a_probe_ends_all_and_is_raised(traces: Processes) -> None:
    async def broken() -> bool:
        raise ZeroDivisionError

    async with running(Child("a", fixed(*script(SLEEP)), broken), Child("b", fixed(*script(SLEEP)), at_once)) as run:
        with pytest.raises(ExceptionGroup):
            await run.finish()
    assert traces.processes() == {}


SUPERVISOR = """
import asyncio, sys
from homing.cli import tether
from homing.cli.child import Child, fixed
from homing.cli.console import Console
from homing.cli.supervisor import Supervisor
SLEEP = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
async def ready(): return True
async def main():
    children = [Child(str(i), fixed(sys.executable, "-I", "-S", "-c", SLEEP), ready) for i in range(3)]
    await Supervisor(children, Console(1, 2, live=False)).run(lambda: print("ready", flush=True))
asyncio.run(main())
"""


def test_a_tether_whose_supervisor_is_gone_starts_nothing(traces: Processes) -> None:
    """The supervisor died between fork and prctl: no signal will come."""
    not_the_parent = 1 if os.getpid() != 1 else 2
    command = [sys.executable, "-I", "-S", tether.__file__, str(not_the_parent), sys.executable, "-c", "print('ran')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_children_end_when_the_supervisor_is_killed(traces: Processes) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "ready\n"
        wait_until(lambda: len(started(traces)) == 3)
        os.kill(started(traces)[0], signal.SIGSTOP)  # a frozen one as well
        supervisor.kill()
    wait_until(lambda: traces.processes() == {})


def started(traces: Processes) -> list[int]:
    """The stand-ins, once they have replaced the tether."""
    return [
        pid
        for pid, command in traces.processes().items()
        if "SIG_IGN" in command and "Supervisor" not in command and "tether" not in command
    ]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
