"""`homing up --demo` as users run it: real Envoy, every process, on ports of the test's own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol
from urllib.request import urlopen

import pytest
from e2e.stack import free_ports

pytestmark = pytest.mark.e2e

READY_S = 10.0
WAIT_S = 30.0
LAST_LINE = "Ctrl-C ends it"
REPLICAS = 3

# What is in the command line of each child, by the name under which the supervisor speaks of it.
CHILDREN = {
    "demo/sim-0": r"-m homing sim .*--id sim-0 ",
    "control": r"-m homing control ",
    "picker-0": r"-m homing ext-proc .*--name picker-0 ",
    "standby": r"-m homing ext-proc .*--name standby ",
    "envoy": r"envoy -c \S+/envoy.yaml ",
}


class Traces(Protocol):
    """The fixture: the processes with the test's mark, and the directory for its temporary files."""

    directory: Path

    def processes(self) -> dict[int, str]: ...

    def files(self) -> list[str]: ...


@dataclass
class Up:
    """A running `homing up`; its output is read all the time, by a thread per stream."""

    process: subprocess.Popen[str]
    traces: Traces
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    def wait_for(self, what: str, holds: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert self.process.poll() is None or holds(), f"ended before: {what}\n" + "\n".join(self.err)
            assert time.monotonic() < deadline, f"not in time: {what}\n" + "\n".join(self.err)
            time.sleep(0.02)

    def ready(self, timeout_s: float = WAIT_S) -> None:
        self.wait_for("ready block", lambda: LAST_LINE in self.out, timeout_s)

    def said(self, pattern: str) -> bool:
        return any(re.fullmatch(f"homing: {pattern}", line) for line in self.err)

    def pid(self, child: str) -> int:
        (pid,) = (p for p, command in self.traces.processes().items() if self._is(child, command))
        return pid

    def curls(self) -> list[list[str]]:
        return [shlex.split(line) for line in self.out if line.startswith("  curl ")]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    @staticmethod
    def _is(child: str, command: str) -> bool:
        return "tether" not in command and re.search(CHILDREN[child], command) is not None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    listen, admin, xds, api, *replicas = free_ports(4 + REPLICAS)
    path = tmp_path / "homing.yaml"
    path.write_text(
        f"listen: 127.0.0.1:{listen}\nadmin: 127.0.0.1:{admin}\nxds: 127.0.0.1:{xds}\napi: 127.0.0.1:{api}\n"
        "expose_decisions: true\n"
        "pools:\n  demo:\n    served_name: demo-model\n    aliases: [chat]\n    replicas:\n"
        + "".join(f"      - {{id: sim-{i}, address: 127.0.0.1:{port}}}\n" for i, port in enumerate(replicas))
    )
    return path


@contextlib.contextmanager
def up(traces: Traces, *arguments: str) -> Iterator[Up]:
    command = [sys.executable, "-m", "homing", "up", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        running = Up(process, traces)
        assert process.stdout is not None
        assert process.stderr is not None
        threads = [follow(process.stdout, running.out), follow(process.stderr, running.err)]
        try:
            yield running
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(WAIT_S)
            for thread in threads:
                thread.join(WAIT_S)


def follow(stream: IO[str], lines: list[str]) -> threading.Thread:
    def read() -> None:
        lines.extend(line.rstrip("\n") for line in stream)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def pasted(curl: list[str], session: str | None = None) -> dict[str, str]:
    """Runs a curl of the ready block, with its session id replaced; the answer's headers. It must be a 200."""
    command = [word.replace("ID-FROM-THE-FIRST-ANSWER", session or "") for word in curl]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    status, *headers = head.split("\n")
    assert status == "HTTP/1.1 200 OK", done.stdout
    assert json.loads(body)["choices"][0]["message"]["content"]
    return dict(line.split(": ", 1) for line in headers)


def test_ready_in_time_the_pasted_conversation_stays_and_ctrl_c_leaves_nothing(traces: Traces, file: Path) -> None:
    with up(traces, "--demo", "-c", str(file)) as running:
        running.ready(READY_S)
        first, second = running.curls()
        turn = pasted(first)
        again = pasted(second, turn["x-session-id"])
        assert again["x-session-id"] == turn["x-session-id"]
        assert again["x-homing-replica"] == turn["x-homing-replica"]
        assert running.end(signal.SIGINT) == 0
    assert traces.processes() == {}
    assert traces.files() == []
    assert running.out.count(LAST_LINE) == 1
    assert not running.said(".*ended.*")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ways_to_end_it_leave_nothing(traces: Traces, file: Path, number: signal.Signals) -> None:
    with up(traces, "--demo", "-c", str(file)) as running:
        running.ready()
        assert running.end(number) == 0
    assert traces.processes() == {}
    assert traces.files() == []


def test_ended_while_starting_leaves_nothing(traces: Traces, file: Path) -> None:
    with up(traces, "--demo", "-c", str(file)) as running:
        running.wait_for("a child", lambda: any(" sim " in command for command in traces.processes().values()))
        assert running.end(signal.SIGINT) == 0
    assert traces.processes() == {}
    assert traces.files() == []
    assert running.out == []


def test_each_killed_child_comes_back_and_is_said(traces: Traces, file: Path) -> None:
    with up(traces, "--demo", "-c", str(file)) as running:
        running.ready()
        for name in CHILDREN:
            os.kill(running.pid(name), signal.SIGKILL)
            running.wait_for(
                f"{name} is said to be restarted",
                lambda name=name: running.said(rf"{name} ended \(signal 9\), restarting in 0\.2 s"),
            )
            running.wait_for(
                f"{name} is back", lambda name=name: running.said(rf"{name} is ready again after \d+\.\d s")
            )
        pasted(running.curls()[0])


def test_envoy_comes_back_from_the_last_good_files_while_control_is_frozen(traces: Traces, file: Path) -> None:
    with up(traces, "--demo", "-c", str(file)) as running:
        running.ready()
        turn = pasted(running.curls()[0])
        os.kill(running.pid("control"), signal.SIGSTOP)
        os.kill(running.pid("envoy"), signal.SIGKILL)
        running.wait_for("envoy is back", lambda: running.said(r"envoy is ready again after .*"))
        assert running.said("control is away: envoy starts from the last good configuration")
        again = pasted(running.curls()[1], turn["x-session-id"])
        assert again["x-homing-replica"] == turn["x-homing-replica"]
        assert running.end(signal.SIGINT) == 0


def test_killed_itself_it_leaves_no_process_and_the_next_run_removes_its_files(traces: Traces, file: Path) -> None:
    with up(traces, "--demo", "-c", str(file)) as running:
        running.ready()
        running.process.kill()
        running.process.wait(WAIT_S)
    wait_until_gone(traces)
    (left,) = traces.directory.iterdir()
    with up(traces, "--demo", "-c", str(file)) as running:
        running.ready()
        assert not left.exists()


def wait_until_gone(traces: Traces) -> None:
    deadline = time.monotonic() + WAIT_S
    while processes := traces.processes():
        assert time.monotonic() < deadline, processes
        time.sleep(0.02)


def test_two_pickers_and_a_standby_take_part(traces: Traces, file: Path) -> None:
    with up(traces, "--demo", "-c", str(file), "--pickers", "2") as running:
        running.ready()
        commands = " ".join(traces.processes().values())
        assert [name for name in ("picker-0", "picker-1", "standby") if f"--name {name} " in commands] == [
            "picker-0",
            "picker-1",
            "standby",
        ]
        first, second = running.curls()
        placed = 0
        for _ in range(12):
            turn = pasted(first)
            placed += turn["x-homing-decision"] == "new"  # not by Envoy alone, on a machine that is busy
            pasted(second, turn["x-session-id"])
        begun, at_home = (decided(file, reason) for reason in ("new", "home"))
        assert begun == at_home  # each picker's sessions came back to it
        assert sorted(begun) == ["picker-0", "picker-1"]
        assert sum(begun.values()) == placed > 8


def decided(file: Path, reason: str) -> dict[str, float]:
    """How many requests each picker placed for that reason."""
    api = re.search(r"^api: (\S+)$", file.read_text(), re.MULTILINE)
    assert api is not None
    with urlopen(f"http://{api[1]}/metrics", timeout=WAIT_S) as answer:
        samples = re.findall(r"^homing_decisions_total\{(.*)\} (\S+)$", answer.read().decode(), re.MULTILINE)
    labelled = [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in samples]
    return {labels["picker"]: value for labels, value in labelled if labels["reason"] == reason}


def refused(traces: Traces, *arguments: str) -> list[str]:
    with up(traces, *arguments) as running:
        assert running.process.wait(WAIT_S) == 2
    assert running.out == []
    return running.err


def test_a_port_in_use_is_one_line(traces: Traces, file: Path) -> None:
    port = int(file.read_text().split("\n")[0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        assert refused(traces, "--demo", "-c", str(file)) == [f"port {port} (listen) is in use"]


def test_a_bad_file_is_one_line(traces: Traces, file: Path) -> None:
    file.write_text(file.read_text().replace("expose_decisions", "expose_decision"))
    (line,) = refused(traces, "--demo", "-c", str(file))
    assert line.startswith(f"{file}:5: expose_decision: ")


def test_a_missing_envoy_is_one_line(traces: Traces, file: Path) -> None:
    assert refused(traces, "--demo", "-c", str(file), "--envoy", "/no/envoy") == ["--envoy /no/envoy does not exist"]


@pytest.mark.slow
def test_an_envoy_that_does_not_start_is_named(traces: Traces, file: Path, tmp_path: Path) -> None:
    """One that prints a good version and then stays silent."""
    stuck = tmp_path / "envoy"
    stuck.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "envoy version: abc/1.40.0/Clean/RELEASE/BoringSSL" && exit\n'
        "exec sleep 600\n"
    )
    stuck.chmod(0o755)
    with up(traces, "--demo", "-c", str(file), "--envoy", str(stuck)) as running:
        assert running.process.wait(2 * WAIT_S) == 1
    assert running.out == []
    assert running.err[-1] == "homing: envoy not ready after 30 s"
    assert traces.processes() == {}
    assert traces.files() == []
