"""Real NGINX in front of simulated replicas, configured by `homing render nginx`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import httpx
from e2e.stack import (
    HOMING,
    Processes,
    SimulatedPool,
    answers,
    free_ports,
    pools_in_file,
    replica_ids,
    start_sim,
    summed,
    until,
)

NJS_MODULE = "/usr/lib/nginx/modules/ngx_http_js_module.so"
SECRET = "a secret of the test"


@dataclass
class NginxStack:
    processes: Processes
    pools: tuple[SimulatedPool, ...]
    port: int
    replica_ports: dict[str, int]
    njs: bool = True
    extra: Mapping[str, object] = field(default_factory=dict)
    pickers: tuple[str, ...] = ()
    """The first decides, the second is its standby."""
    log_ports: dict[str, int] = field(default_factory=dict)
    picker_flags: tuple[str, ...] = ()
    """Further options of pickers that start from now on."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> int:
        return self.port

    @property
    def picker_http(self) -> tuple[str, ...]:
        """The names of its pickers."""
        return self.pickers

    @property
    def directory(self) -> Path:
        return self.processes.directory

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.directory / "access.log").read_text().splitlines()]

    def write_file(self) -> None:
        pools = pools_in_file(self.pools, self.replica_ports)
        settings = {"listen": f"127.0.0.1:{self.port}", "expose_decisions": True, "pools": pools, **self.extra}
        (self.directory / "homing.yaml").write_text(json.dumps(settings))  # JSON is YAML

    def render(self) -> None:
        flags = ("--out", str(self.directory), "--access-log", str(self.directory / "access.log"))
        flags += ("--njs-module", NJS_MODULE) if self.njs else ("--no-njs",)
        for option, name in zip(("--picker", "--standby"), self.pickers, strict=False):
            flags += (option, self.socket(name, "http"), "--log", f"127.0.0.1:{self.log_ports[name]}")
        flags += ("--budget-ms", "500")  # the machine of a test is busier than a gateway should be
        command = (*HOMING, "render", "nginx", "-c", str(self.directory / "homing.yaml"), *flags)
        subprocess.run(command, check=True)

    @property
    def command(self) -> tuple[str, ...]:
        path = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert path is not None, "nginx is not installed"
        directives = f"pid {self.directory}/nginx.pid; error_log stderr warn;"
        if os.geteuid() == 0:  # its workers would be nobody, who may not enter the test's directory
            directives += " user root;"
        return (path, "-e", "stderr", "-c", str(self.directory / "nginx.conf"), "-g", directives)

    def start_replica(self, pool: SimulatedPool, replica_id: str) -> None:
        start_sim(self.processes, pool, replica_id, self.replica_ports[replica_id])

    def socket(self, picker: str, kind: str) -> str:
        return f"unix:{self.directory}/{picker}-{kind}.sock"

    def start_picker(self, name: str) -> None:
        addresses = ("--listen", self.socket(name, "grpc"), "--http", self.socket(name, "http"))
        log = ("--nginx-log", f"127.0.0.1:{self.log_ports[name]}")
        file = ("-c", str(self.directory / "homing.yaml"), "--name", name)
        self.processes.start(name, (*HOMING, "ext-proc", *file, *addresses, *log, *self.picker_flags))

    def picker(self, name: str, path: str) -> str | None:
        """What a picker's HTTP port answers; None if it does not, or not with 200."""
        transport = httpx.HTTPTransport(uds=self.socket(name, "http").removeprefix("unix:"))
        with httpx.Client(transport=transport, timeout=2) as client:
            try:
                answer = client.get(f"http://picker{path}")
            except httpx.HTTPError:
                return None
        return answer.text if answer.status_code == 200 else None

    def metric(self, name: str, picker: str = "picker", **labels: str) -> float:
        """The sum of a picker's samples of that name whose labels include `labels`."""
        return summed(self.picker(picker, "/metrics") or "", name, labels)

    def in_flight(self) -> float:
        return sum(self.metric("homing_in_flight", picker) for picker in self.pickers)

    def fail_opens(self) -> int:
        """Requests for a pool that no picker decided."""
        return sum(line["decision"] == "fallback" and line["pool"] != "" for line in self.log())

    def pickers_in_service(self) -> int:
        return sum(self.picker(name, "/readyz") is not None for name in self.pickers)

    def start(self) -> None:
        self.write_file()
        self.render()
        for pool in self.pools:
            for replica_id in replica_ids(pool) if not pool.ports else ():
                self.start_replica(pool, replica_id)
        replicas = [f"http://127.0.0.1:{port}/health" for port in self.replica_ports.values()]
        until(lambda: all(map(answers, replicas)), what="the replicas")
        for name in self.pickers:
            self.start_picker(name)
        until(lambda: all(self.picker(name, "/readyz") for name in self.pickers), what="the pickers")
        self.run_nginx()

    def start_nginx(self) -> None:
        """NGINX alone, where the test serves itself."""
        self.write_file()
        self.render()
        self.run_nginx()

    def run_nginx(self) -> None:
        *arguments, directives = self.command
        environment = ("env", f"HOMING_SECRET={SECRET}")
        self.processes.start("nginx", (*environment, *arguments, f"daemon off; {directives}"))
        until(lambda: answers(f"{self.url}/v1/models"), what="NGINX")


@contextlib.contextmanager
def nginx_stack(
    directory: Path,
    pools: tuple[SimulatedPool, ...],
    njs: bool = True,
    extra: Mapping[str, object] = MappingProxyType({}),
    pickers: tuple[str, ...] = (),
) -> Iterator[NginxStack]:
    """Started and ready; everything is ended at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [r for pool in pools for r in replica_ids(pool)]
    port, *ports = free_ports(1 + len(names) + len(pickers))
    replicas, logs = dict(zip(names, ports, strict=False)), dict(zip(pickers, ports[len(names) :], strict=True))
    replicas |= {r: port for pool in pools for r, port in zip(replica_ids(pool), pool.ports, strict=False)}
    stack = NginxStack(Processes(directory), pools, port, replicas, njs, extra, pickers, logs)
    try:
        stack.start()
        yield stack
    finally:
        stack.processes.stop_all()
