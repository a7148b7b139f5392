"""One contender before fresh replicas: started, loaded, looked at, ended."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import msgspec

from bench.gateway.contenders import Processes, StartError
from bench.routing.contenders import Contender
from bench.routing.fleet import Member
from bench.routing.gateways import Gateway
from bench.routing.load import Load as Sending
from bench.routing.load import Outcome
from bench.routing.replicas import Sample, Simulated, Spec
from bench.routing.work import MODEL, Change, Work

READY_S = 60.0
SAMPLES_S = 0.5
PORTS = 40


class Conditions(msgspec.Struct, frozen=True):
    """The same for every contender. `speed` is against an A100, `time_scale` simulated seconds in a real one; a run
    ends `grace` times the span of its arrivals after it began, whatever has not ended by then. `settle_s`: real seconds
    between the start of everything and the first request."""

    speed: float = 0.5
    time_scale: float = 2.0
    stream_interval: int = 64
    grace: float = 1.5
    settle_s: float = 1.0


class Seen(msgspec.Struct, frozen=True):
    """One look at the replicas, at simulated second `at_s`."""

    at_s: float
    sample: Sample


class Run(msgspec.Struct, frozen=True):
    """What came of one contender. Seconds are simulated but for `cpu_s`, by process."""

    contender: str
    outcomes: list[Outcome]
    moved: int
    took_s: float
    seen: list[Seen]
    cpu_s: dict[str, float]
    real_s: float
    engine_ttft_s: float  # the mean that the engines say of themselves
    fail_opens: int


@dataclass
class Stand:
    """The processes of one run."""

    processes: Processes
    work: Work
    members: list[Member]
    admin: int
    gateway: Gateway
    conditions: Conditions
    seen: list[Seen] = field(default_factory=list)


@contextlib.contextmanager
def standing(contender: Contender, work: Work, conditions: Conditions, directory: Path) -> Iterator[Stand]:
    """Raises StartError. `directory` must be new and have a short path."""
    directory.mkdir()
    processes = Processes(directory)
    ports = iter(free_ports(PORTS + 3 * work.replicas))
    admin = next(ports)
    members = [_member(directory, f"gpu-{i}", ports, contender.kv) for i in range(work.replicas)]
    spec = Spec(
        admin,
        [Simulated(member, work.slow.get(i, 1.0)) for i, member in enumerate(members)],
        conditions.speed,
        conditions.time_scale,
        conditions.stream_interval,
    )
    try:
        _start_replicas(processes, spec)
        present = [m for i, m in enumerate(members) if i not in work.joining]
        gateway = contender.start(processes, ports, present)
        stand = Stand(processes, work, members, admin, gateway, conditions)
        for port in gateway.ports:
            _until(processes, "gateway", partial(_answers, port))
        yield stand
    finally:
        processes.end()


async def run(stand: Stand, contender: Contender) -> Run:
    work, scale = stand.work, stand.conditions.time_scale
    sending = Sending(work, stand.gateway.ports, contender.ids, scale)
    began, before = time.perf_counter(), _cpu(stand.processes)
    opened = _fail_opens(stand.gateway)
    own = time.process_time()
    until_s = (work.turns[-1].due_s if work.turns else 0.0) * stand.conditions.grace + 30.0
    looking = asyncio.create_task(_look(stand, sending))
    changing = asyncio.create_task(_change(stand, sending))
    try:
        await sending.run(until_s)
        if changing.done():
            changing.result()
    finally:
        looking.cancel()
        changing.cancel()
        await asyncio.gather(looking, changing, return_exceptions=True)
    spent = {name: used - before.get(name, 0.0) for name, used in _cpu(stand.processes).items()}
    spent["generator"] = time.process_time() - own
    return Run(
        contender.name,
        sorted(sending.outcomes, key=lambda o: o.turn),
        sending.moved,
        max((o.due_s + o.total_s for o in sending.outcomes), default=0.0),
        stand.seen,
        spent,
        time.perf_counter() - began,
        _engine_ttft_s(stand.members),
        _fail_opens(stand.gateway) - opened,
    )


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, below those that the kernel gives to connections: such a one could take a port
    before it is listened on."""
    free: list[int] = []
    for port in random.sample(range(12_000, 32_000), 8_000):
        if len(free) == count:
            return free
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            free.append(port)
    raise StartError("no free ports")


def _member(directory: Path, name: str, ports: Iterator[int], kv: str) -> Member:
    port = next(ports)
    if not kv:
        return Member(name, port)
    if kv == "tcp":
        return Member(name, port, f"tcp://127.0.0.1:{next(ports)}", f"tcp://127.0.0.1:{next(ports)}")
    return Member(name, port, f"ipc://{directory}/{name}.kv", f"ipc://{directory}/{name}.re")


def _start_replicas(processes: Processes, spec: Spec) -> None:
    argv = (sys.executable, "-m", "bench.routing.replicas", msgspec.json.encode(spec).decode())
    processes.start("replicas", argv)
    for one in spec.replicas:
        _until(processes, "replicas", partial(_answers_get, f"{one.member.url}/health"))


def _until(processes: Processes, name: str, condition: Callable[[], bool]) -> None:
    """Raises StartError."""
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline or processes.running[name].poll() is not None:
            raise StartError(f"{name} does not answer:\n{processes.last_words(name)}")
        time.sleep(0.1)


def _answers_get(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _answers(port: int) -> bool:
    """A short prompt, which changes no cache to speak of."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    try:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        return httpx.post(url, json=body, timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


async def _look(stand: Stand, sending: Sending) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
        while True:
            answer = await client.get(f"http://127.0.0.1:{stand.admin}/sample")
            sample = msgspec.json.decode(answer.content, type=Sample)
            stand.seen.append(Seen(sending.now_s, sample))
            await asyncio.sleep(SAMPLES_S)


async def _change(stand: Stand, sending: Sending) -> None:
    """What happens to the fleet, at its time."""
    gone: set[int] = set(stand.work.joining)
    for change in stand.work.changes:
        await asyncio.sleep(max(change.at_s - sending.now_s, 0.0) / stand.conditions.time_scale)
        await asyncio.to_thread(_apply, stand, change, gone)


def _apply(stand: Stand, change: Change, gone: set[int]) -> None:
    member = stand.members[change.replica]
    if change.kind == "joins":
        gone.discard(change.replica)
        stand.gateway.members(_left(stand, gone))
    elif change.kind == "drains":
        stand.gateway.drain(member, [m for m in _left(stand, gone) if m is not member])
        gone.add(change.replica)
    else:  # it dies: nobody is told
        url = f"http://127.0.0.1:{stand.admin}/{member.id}/restart"
        httpx.post(url, json={"down_s": 1e6}, timeout=5.0, trust_env=False).raise_for_status()


def _left(stand: Stand, gone: set[int]) -> Sequence[Member]:
    return [member for i, member in enumerate(stand.members) if i not in gone]


def _cpu(processes: Processes) -> dict[str, float]:
    """Of each, with the processes that it started."""
    return {name: sum(map(_used_s, _family(process.pid))) for name, process in processes.running.items()}


def _family(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in file.read_text().split():
                found += _family(int(child))
    return found


def _used_s(pid: int) -> float:
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _engine_ttft_s(members: Sequence[Member]) -> float:
    """The mean over all of them that still answer, without what came before the run: one short prompt each."""
    total = count = 0.0
    for member in members:
        with contextlib.suppress(httpx.HTTPError):
            text = httpx.get(f"{member.url}/metrics", timeout=5.0, trust_env=False).text
            total += _summed(text, "vllm:time_to_first_token_seconds_sum")
            count += _summed(text, "vllm:time_to_first_token_seconds_count")
    return total / count if count else 0.0


def _summed(text: str, name: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def _fail_opens(gateway: Gateway) -> int:
    """Requests that Envoy let go on without the picker, so far."""
    total = 0
    for admin in gateway.admins:
        url = f"http://127.0.0.1:{admin}/stats"
        text = httpx.get(url, params={"filter": "failure_mode_allowed"}, timeout=5.0, trust_env=False).text
        total += sum(int(line.rpartition(": ")[2]) for line in text.splitlines() if line)
    return total
