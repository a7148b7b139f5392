"""The processes of `homing up`, as values: who is started with which arguments, after whom."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from homing.cli.child import Child, fixed
from homing.cli.demo import SimulatedReplica
from homing.cli.envoy_process import EnvoyStart
from homing.cli.ports import Wanted
from homing.cli.probes import Accepts, Answers, Asks, Every, reachable
from homing.control.envoy_config import Source, Wiring, render_bootstrap
from homing.control.envoy_tls import write_secret_files
from homing.core.config import Config

# -P: what lies in the user's working directory is not imported. Unbuffered: each line is seen when it is written.
PYTHON = (sys.executable, "-P", "-m", "homing")
VARIABLE = "HOMING_SECRET"  # as in ext_proc.pins.secret, which is too much to import here
PYTHON_ENV = {"PYTHONUNBUFFERED": "1"}

PRESET = "h100-llama-8b"
"""What a simulated replica is: on hardware of its own, since there it costs time what is not in its prefix cache."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What `homing up` is to run. `run` is the directory for sockets and files."""

    config: Config
    file: Path
    run: Path
    simulated: tuple[SimulatedReplica, ...]
    pickers: int
    envoy: Path
    envoy_workers: int
    secret: str = field(repr=False)
    """What its pickers share; a secret of the file's goes before it."""
    tls: ssl.SSLContext | None = None
    """For the API, where it speaks TLS."""

    @property
    def state(self) -> Path:
        return self.run / "state"

    def picker_names(self) -> tuple[str, ...]:
        return tuple(f"picker-{i}" for i in range(self.pickers))

    def socket(self, name: str) -> str:
        return f"unix:{self.run}/{name}.sock"

    def http_socket(self, name: str) -> str:
        return f"unix:{self.run}/{name}-http.sock"

    def wiring(self) -> Wiring:
        return Wiring(tuple(map(self.socket, self.picker_names())), self.socket(STANDBY), str(self.sds))

    @property
    def sds(self) -> Path:
        return self.run / "sds"


CONTROL = "control"
STANDBY = "standby"
ENVOY = "envoy"


def children(installation: Installation, say: Callable[[str], None]) -> tuple[Child, ...]:
    """In the order in which they are started where nothing else decides: what the rest waits for comes first."""
    simulated = tuple(map(_replica, installation.simulated))
    pickers = (*installation.picker_names(), STANDBY)
    return (
        *simulated,
        _control(installation, after=tuple(child.name for child in simulated)),
        *(_picker(installation, name) for name in pickers),
        _envoy(installation, say),
    )


def scheme(config: Config) -> str:
    """Of the API."""
    return "http" if config.tls.api is None else "https"


def listeners(config: Config, simulated: tuple[SimulatedReplica, ...]) -> tuple[Wanted, ...]:
    """Every TCP address that these processes listen on."""
    return (
        Wanted("listen", config.listen),
        Wanted("admin", config.admin),
        Wanted("xds", config.xds),
        Wanted("api", config.api),
        *(Wanted(f"replica {replica.id}", reachable(replica.address)) for replica in simulated),
    )


def _replica(replica: SimulatedReplica) -> Child:
    address = str(replica.address)
    return Child(
        f"{replica.pool}/{replica.id}",
        fixed(*PYTHON, "sim", "--listen", address, "--id", replica.id, "--model", replica.model, "--preset", PRESET),
        Answers(address, "/health"),
        env=PYTHON_ENV,
    )


def _control(installation: Installation, after: tuple[str, ...]) -> Child:
    """After the simulated replicas, so that its first round of probes finds them."""
    pickers = installation.picker_names()
    return Child(
        CONTROL,
        fixed(
            *PYTHON,
            *("control", "-c", str(installation.file), "--state-dir", str(installation.state)),
            *("--sds", str(installation.sds)),
            *_each("--picker", map(installation.socket, pickers)),
            *("--standby", installation.socket(STANDBY)),
            *_each("--picker-http", (f"{name}={installation.http_socket(name)}" for name in (*pickers, STANDBY))),
        ),
        Answers(str(reachable(installation.config.api)), "/readyz", installation.tls),
        env=PYTHON_ENV,
        after=after,
    )


def _each(option: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(argument for value in values for argument in (option, value))


def _picker(installation: Installation, name: str) -> Child:
    siblings = (other for other in (*installation.picker_names(), STANDBY) if other != name)
    return Child(
        name,
        fixed(
            *PYTHON,
            *("ext-proc", "-c", str(installation.file), "--name", name),
            *("--listen", installation.socket(name), "--http", installation.http_socket(name)),
            *("--control", f"{scheme(installation.config)}://{reachable(installation.config.api)}"),
            *_each("--sibling", map(installation.http_socket, siblings)),
            *_each("--shard", map(installation.socket, installation.picker_names())),
        ),
        Answers(installation.http_socket(name), "/readyz"),
        env={**PYTHON_ENV, VARIABLE: installation.secret},
    )


def _envoy(installation: Installation, say: Callable[[str], None]) -> Child:
    config, wiring = installation.config, installation.wiring()

    def bootstrap(source: Source) -> str:
        write_secret_files(config, installation.file, installation.sds)
        return render_bootstrap(config, config.fleet(), wiring, source)

    start = EnvoyStart(
        binary=installation.envoy,
        run=installation.run,
        state=installation.state,
        workers=installation.envoy_workers,
        control_ready=Answers(str(reachable(config.api)), "/readyz", installation.tls),
        bootstrap=bootstrap,
        say=say,
    )
    pickers = tuple(map(installation.http_socket, (*installation.picker_names(), STANDBY)))
    admin = str(config.admin)
    ready = Every((Answers(admin, "/ready"), Accepts(reachable(config.listen)), Asks(admin, pickers)))
    return Child(ENVOY, start, ready, after=(CONTROL,), ends_first=True)
