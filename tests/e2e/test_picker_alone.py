"""A picker without a control service: it reads the file, probes replicas, reloads, and says how it is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from e2e.stack import HOMING, SimulatedPool, StaticStack, free_ports, static_stack, until

pytestmark = pytest.mark.e2e

POOLS = (SimulatedPool("alone", "alone-model", 3),)
ALL = {"alone-0", "alone-1", "alone-2"}


@pytest.fixture(scope="module")
def stack(short_directory: Path) -> Iterator[StaticStack]:
    """Envoy knows three replicas, and so do the picker and its standby."""
    with static_stack(short_directory / "alone", POOLS) as started:
        yield started


@pytest.fixture(autouse=True)
def whole_file(stack: StaticStack) -> Iterator[None]:
    """Each test begins and ends with the whole file, and with all that is in it alive."""
    yield
    stack.write_file()
    for name in (*ALL, "picker", "standby"):
        if name not in stack.processes.running:
            start = stack.start_picker if name in stack.picker_http else lambda r: stack.start_replica(POOLS[0], r)
            start(name)
    until(lambda: stack.pickers_ready() and known(stack) == ALL, what="everything as before")
    until_named(stack, ALL)


def known(stack: StaticStack) -> set[str]:
    """The replicas that the picker knows."""
    text = httpx.get(f"http://127.0.0.1:{stack.picker_http['picker']}/metrics", trust_env=False).text
    lines = [line for line in text.splitlines() if line.startswith("homing_in_flight{")]
    return {line.split('replica="')[1].split('"')[0] for line in lines}


def ask(stack: StaticStack, session: str | None = None) -> httpx.Response:
    body = {"model": "alone-model", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    headers = {} if session is None else {"x-session-id": session}
    answer = httpx.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers, trust_env=False)
    assert answer.status_code == 200
    return answer


def named(stack: StaticStack, sessions: int = 24) -> set[str]:
    """Where new sessions go, as the picker says."""
    answers = [ask(stack) for _ in range(sessions)]
    assert {a.headers["x-homing-decision"] for a in answers} == {"new"}
    return {a.headers["x-homing-replica"] for a in answers}


def until_named(stack: StaticStack, replicas: set[str]) -> None:
    """One that is back has no sessions, so it gets the new ones until it has as many as the others."""
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.update(named(stack))
        return seen >= replicas

    until(all_seen, what=f"{replicas} to be named")


def log_since(stack: StaticStack, start: int) -> str:
    """What the picker has logged beyond the first `start` characters."""
    return stack.processes.log("picker")[start:]


def probe_failed(stack: StaticStack, since: int) -> bool:
    return re.search(r"replica alone-1 of pool alone \(\S+\) fails its probes", log_since(stack, since)) is not None


def edit(stack: StaticStack, change: Callable[[list[dict[str, object]]], None]) -> None:
    """Another list of replicas, written as editors do: beside the file, then renamed over it."""
    settings = json.loads(stack.file.read_text())
    change(settings["pools"]["alone"]["replicas"])
    beside = stack.file.with_suffix(".new")
    beside.write_text(json.dumps(settings))
    beside.replace(stack.file)


def drop(replica_id: str) -> Callable[[list[dict[str, object]]], None]:
    def change(replicas: list[dict[str, object]]) -> None:
        replicas[:] = [r for r in replicas if r["id"] != replica_id]

    return change


def test_a_replica_that_leaves_the_file_and_comes_back_is_followed(stack: StaticStack) -> None:
    edit(stack, drop("alone-2"))
    until(lambda: known(stack) == {"alone-0", "alone-1"}, what="the smaller file")
    assert named(stack) <= {"alone-0", "alone-1"}
    stack.write_file()
    until(lambda: known(stack) == ALL, what="the whole file")
    until_named(stack, {"alone-2"})


def test_a_replica_that_envoy_does_not_know_yet_costs_no_request_and_no_home(stack: StaticStack) -> None:
    """What it is given goes where Envoy's hash says, and lives there from then on."""
    (port,) = free_ports(1)
    flags = ("--listen", f"127.0.0.1:{port}", "--id", "alone-3", "--model", "alone-model", "--ttft-ms", "1")
    stack.processes.start("alone-3", (*HOMING, "sim", *flags))
    edit(stack, lambda replicas: replicas.append({"id": "alone-3", "address": f"127.0.0.1:{port}"}))
    until(lambda: known(stack) == {*ALL, "alone-3"}, what="the larger file")
    answers = f"alone-3 of pool alone (127.0.0.1:{port}) answers"  # one that starts slowly fails some first
    until(lambda: answers in stack.processes.log("picker"), what="its probes to be answered")
    begun = [ask(stack) for _ in range(24)]
    assert {a.headers["x-homing-decision"] for a in begun} == {"new"}
    assert {a.headers["x-homing-replica"] for a in begun} <= ALL
    for first in begun:
        again = ask(stack, first.headers["x-session-id"])
        assert again.headers["x-homing-replica"] == first.headers["x-homing-replica"]
    until(lambda: stack.metric("homing_rehomed_total") > 0, what="the picker to hear who served")
    stack.processes.kill("alone-3")


def test_sighup_reads_the_file_at_once_changed_or_not_as_it_seems(stack: StaticStack) -> None:
    """A file with the same size, time and inode looks the same: only SIGHUP has it read."""
    picker, file = stack.processes.running["picker"].pid, stack.file
    before = file.stat()
    os.kill(picker, signal.SIGSTOP)
    text = file.read_text()
    file.write_text(text.replace('"alone-2"', '"alone-9"'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.kill(picker, signal.SIGCONT)
    assert (file.stat().st_size, file.stat().st_ino) == (before.st_size, before.st_ino)
    time.sleep(1.5)  # it looks once a second
    assert known(stack) == ALL
    os.kill(picker, signal.SIGHUP)
    until(lambda: known(stack) == {"alone-0", "alone-1", "alone-9"}, what="the file as it is now")


def test_a_bad_file_keeps_the_last_good_one_and_a_good_one_is_taken_again(stack: StaticStack) -> None:
    logged = len(stack.processes.log("picker"))
    stack.file.write_text("pools: {alone: {replicas: []}}\n")
    until(lambda: "the last good one stays" in log_since(stack, logged), what="the refusal")
    assert "homing.yaml:1: pools.alone.replicas" in log_since(stack, logged)
    assert known(stack) == ALL
    until_named(stack, ALL)
    assert stack.pickers_ready()
    until(lambda: stack.metric("homing_config_good") == 0, what="the refusal to be counted")
    stack.file.unlink()
    os.kill(stack.processes.running["picker"].pid, signal.SIGHUP)
    until(lambda: log_since(stack, logged).count("the last good one stays") >= 2, what="the refusal")
    assert known(stack) == ALL
    until_named(stack, ALL)
    stack.write_file()
    edit(stack, drop("alone-0"))
    until(lambda: known(stack) == {"alone-1", "alone-2"}, what="the good file")
    until(lambda: stack.metric("homing_config_good") == 1, what="the good file")
    secret = {"sessions": {"signed": {"keys": ["file:not-there"]}}}
    stack.file.write_text(json.dumps(json.loads(stack.file.read_text()) | secret))
    until(lambda: stack.metric("homing_config_good") == 0, what="a key to be missed")
    assert "the settings stay as they were: file:not-there" in log_since(stack, logged)


def test_a_replica_that_dies_is_not_named_any_more_and_is_when_it_is_back(stack: StaticStack) -> None:
    logged = len(stack.processes.log("picker"))
    stack.processes.kill("alone-1")
    until(lambda: probe_failed(stack, logged), what="the picker to notice")
    retried = stack.metric("homing_retried_total")
    assert named(stack) <= {"alone-0", "alone-2"}
    assert stack.metric("homing_retried_total") == retried  # not named and then found dead
    stack.start_replica(POOLS[0], "alone-1")
    until_named(stack, {"alone-1"})


def test_a_replica_that_freezes_is_not_named_either(stack: StaticStack) -> None:
    logged = len(stack.processes.log("picker"))
    stack.processes.signal("alone-1", signal.SIGSTOP)
    until(lambda: probe_failed(stack, logged), what="the picker to notice")
    assert named(stack) <= {"alone-0", "alone-2"}
    stack.processes.signal("alone-1", signal.SIGCONT)
    until_named(stack, {"alone-1"})


def test_health_and_metrics_are_served_on_a_port_of_its_own(stack: StaticStack) -> None:
    base = f"http://127.0.0.1:{stack.picker_http['picker']}"
    for path in ("/healthz", "/readyz"):
        answer = httpx.get(base + path, trust_env=False)
        assert (answer.status_code, answer.text) == (200, "ok\n")
    assert httpx.get(f"{base}/metrics", trust_env=False).headers["content-type"].startswith("text/plain")
    assert stack.metric("homing_sessions") >= 0
    assert httpx.get(f"{base}/nothing", trust_env=False).status_code == 404


def test_it_is_alive_but_not_ready_until_replicas_have_been_probed(stack: StaticStack) -> None:
    """A replica that hangs: the first verdict takes its timeouts, and until then nobody asks this picker."""
    (port,) = free_ports(1)
    stack.processes.signal("alone-1", signal.SIGSTOP)
    flags = ("--listen", stack.picker_socket("third"), "--http", f"127.0.0.1:{port}", "--name", "third")
    stack.processes.start("third", (*HOMING, "ext-proc", "-c", str(stack.file), *flags))
    seen: set[tuple[int, int]] = set()

    def ready() -> bool:
        try:
            statuses = [httpx.get(f"http://127.0.0.1:{port}{p}", trust_env=False) for p in ("/healthz", "/readyz")]
        except httpx.ConnectError:
            return False
        if statuses[1].status_code == 503:
            assert statuses[1].text == "no fleet yet\n"
        seen.add((statuses[0].status_code, statuses[1].status_code))
        return statuses[1].status_code == 200

    until(ready, what="the third picker")
    assert seen == {(200, 503), (200, 200)}
    stack.processes.kill("third")
    stack.processes.signal("alone-1", signal.SIGCONT)


def test_sigterm_ends_it_and_leaves_no_socket(stack: StaticStack) -> None:
    process = stack.processes.running.pop("standby")
    socket = stack.processes.directory / "standby.sock"
    assert socket.exists()
    process.terminate()
    assert process.wait(3) == 0
    assert not socket.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pools: {}\n", "pools: found an empty mapping, allowed: a mapping of 1 to 200 pools"),
        (None, "allowed: a file that can be read (-c FILE)"),
    ],
)
def test_it_does_not_start_with_a_file_that_is_wrong(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "homing.yaml"
    if text is not None:
        file.write_text(text)
    argv = (*HOMING, "ext-proc", "-c", str(file), "--listen", f"unix:{tmp_path}/p", "--http", f"unix:{tmp_path}/h")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--listen", "unix:{tmp}/p", "--http", "{taken}"), "Error: cannot listen on {taken}: Address already in use"),
        (("--listen", "{taken}", "--http", "unix:{tmp}/h"), "Error: cannot listen on {taken}"),
        (("--listen", "unix:/no/such/p", "--http", "unix:{tmp}/h"), "Error: cannot listen on unix:/no/such/p"),
        (
            ("--listen", "unix:{tmp}/p", "--http", "unix:/no/such/h"),
            "Error: cannot listen on unix:/no/such/h: No such file or directory",
        ),
        (
            ("--listen", "nowhere", "--http", "unix:{tmp}/h"),
            "Error: --listen: 'nowhere' is neither unix:/path nor host:port (no port from 1 to 65535)",
        ),
        (
            ("--listen", "unix:{tmp}/p", "--http", "nowhere"),
            "Error: --http: 'nowhere' is neither unix:/path nor host:port (no port from 1 to 65535)",
        ),
    ],
)
def test_an_address_that_cannot_be_had_is_one_line(
    stack: StaticStack, short_directory: Path, flags: tuple[str, ...], said: str
) -> None:
    values = {"tmp": str(short_directory), "taken": f"127.0.0.1:{stack.picker_http['picker']}"}
    argv = (*HOMING, "ext-proc", "-c", str(stack.file), *(flag.format(**values) for flag in flags))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (2, said.format(**values) + "\n")
