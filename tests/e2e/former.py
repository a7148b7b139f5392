"""A stranger's Envoy with the fragments of a former version, today's pickers and today's control service behind it.

`former/fragments.yaml` is what the version before this one wrote by `homing render envoy --all-fragments` for
`former/homing.yaml`, with the sockets of `SOCKETS`. At a release it is rendered anew by what is released.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from e2e.dropin import Pasted, read_fragments
from e2e.stack import HOMING, answers, free_ports, until
from e2e.strangers_stack import PLAIN, DroppedInStack, started

FORMER = Path(__file__).with_name("former")
PORTS = (11000, 11001, 11002)
SOCKETS = {"picker": "/run/homing-1/picker.sock", "standby": "/run/homing-2/picker.sock"}
FRAGMENTS = (*PLAIN.minimal(), "listener", "http-connection-manager", "route")


@dataclass
class FormerStack(DroppedInStack):
    """`today`: the fragments that have been pasted again since."""

    today: set[str] = field(default_factory=set)
    api: int = 0

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api}"

    def start(self) -> None:
        xds, self.api = free_ports(2)
        self.extra = {"xds": f"127.0.0.1:{xds}", "api": f"127.0.0.1:{self.api}"}
        self.picker_flags = ("--control", self.api_url)
        self.write_file()
        https = [argument for port in self.picker_http.values() for argument in ("--picker-http", f"127.0.0.1:{port}")]
        self.processes.start("control", (*HOMING, "control", "-c", str(self.file), *https))
        super().start()
        until(lambda: answers(f"{self.api_url}/readyz"), what="control")

    def rendered(self) -> dict[str, Pasted]:
        now = super().rendered()
        text = (FORMER / "fragments.yaml").read_text()
        for port, replica in zip(PORTS, self.replica_ports.values(), strict=True):
            text = text.replace(f'"port_value": {port}', f'"port_value": {replica}')
        for name, socket in SOCKETS.items():
            text = text.replace(socket, self.picker_socket(name).removeprefix("unix:"))
        return {name: now[name] if name in self.today else each for name, each in read_fragments(text).items()}

    def paste_again(self, *names: str) -> None:
        self.today.update(names)
        self.render()
        self.restart_envoy()
        self.until_envoy_ready()

    def drain(self, pool: str, replica: str) -> None:
        httpx.post(f"{self.api_url}/api/pools/{pool}/replicas/{replica}/drain", trust_env=False).raise_for_status()

    def undrain(self, pool: str, replica: str) -> None:
        httpx.post(f"{self.api_url}/api/pools/{pool}/replicas/{replica}/undrain", trust_env=False).raise_for_status()


@contextlib.contextmanager
def former_stack(directory: Path) -> Iterator[FormerStack]:
    with started(FormerStack, directory, PLAIN, FRAGMENTS) as stack:
        yield stack
