"""Real NGINX in front of simulated replicas, configured by `homing render nginx`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.stack import HOMING, Processes, SimulatedPool, answers, free_ports, replica_ids, until

NJS_MODULE = "/usr/lib/nginx/modules/ngx_http_js_module.so"
SECRET = "a secret of the test"


@dataclass
class NginxStack:
    processes: Processes
    pools: tuple[SimulatedPool, ...]
    port: int
    replica_ports: dict[str, int]
    njs: bool = True
    extra: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def directory(self) -> Path:
        return self.processes.directory

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.directory / "access.log").read_text().splitlines()]

    def write_file(self) -> None:
        pools = {
            pool.id: {
                "served_name": pool.served_name,
                "aliases": list(pool.aliases),
                "replicas": [{"id": r, "address": f"127.0.0.1:{self.replica_ports[r]}"} for r in replica_ids(pool)],
            }
            for pool in self.pools
        }
        settings = {"listen": f"127.0.0.1:{self.port}", "expose_decisions": True, "pools": pools}
        (self.directory / "homing.yaml").write_text(json.dumps(settings) + self.extra)

    def render(self) -> None:
        flags = ("--out", str(self.directory), "--access-log", str(self.directory / "access.log"))
        flags += ("--njs-module", NJS_MODULE) if self.njs else ("--no-njs",)
        command = (*HOMING, "render", "nginx", "-c", str(self.directory / "homing.yaml"), *flags)
        subprocess.run(command, check=True)

    @property
    def command(self) -> tuple[str, ...]:
        path = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert path is not None, "nginx is not installed"
        directives = f"pid {self.directory}/nginx.pid; error_log stderr warn;"
        return (path, "-e", "stderr", "-c", str(self.directory / "nginx.conf"), "-g", directives)

    def start_replica(self, pool: SimulatedPool, replica_id: str) -> None:
        listen = f"127.0.0.1:{self.replica_ports[replica_id]}"
        argv = ("sim", "--listen", listen, "--id", replica_id, "--model", pool.served_name, *pool.sim_flags)
        self.processes.start(replica_id, (*HOMING, *argv))

    def start(self) -> None:
        self.write_file()
        self.render()
        for pool in self.pools:
            for replica_id in replica_ids(pool):
                self.start_replica(pool, replica_id)
        replicas = [f"http://127.0.0.1:{port}/health" for port in self.replica_ports.values()]
        until(lambda: all(map(answers, replicas)), what="the replicas")
        *arguments, directives = self.command
        environment = ("env", f"HOMING_SECRET={SECRET}")
        self.processes.start("nginx", (*environment, *arguments, f"daemon off; {directives}"))
        until(lambda: answers(f"{self.url}/v1/models"), what="NGINX")


@contextlib.contextmanager
def nginx_stack(
    directory: Path, pools: tuple[SimulatedPool, ...], njs: bool = True, extra: str = ""
) -> Iterator[NginxStack]:
    """Started and ready; everything is ended at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [r for pool in pools for r in replica_ids(pool)]
    port, *replicas = free_ports(1 + len(names))
    stack = NginxStack(Processes(directory), pools, port, dict(zip(names, replicas, strict=True)), njs, extra)
    try:
        stack.start()
        yield stack
    finally:
        stack.processes.stop_all()
