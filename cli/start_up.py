"""`homing up`, after its arguments are read: check, then start, say where everything is, and wait for the end."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from homing.cli import config_file, demo, envoy_binary, ports
from homing.cli.children import Installation, children, listeners
from homing.cli.console import Console
from homing.cli.descriptors import raise_limit
from homing.cli.envoy_process import default_workers
from homing.cli.ready_block import ready_block
from homing.cli.run_directory import run_directory
from homing.cli.supervisor import Supervisor
from homing.control.certificates import CertificateError
from homing.control.tls import ProcessTls
from homing.core.config import Config, ConfigError, parse

DONE, FAILED, MISUSED = 0, 1, 2
DEFAULT_FILE = "homing.yaml"


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `homing up`. `file` None: the default one, or with `demo` one that is written for it."""

    file: str | None
    demo: bool
    replicas: int
    pickers: int
    envoy: str | None
    workers: int | None


class RefusedError(Exception):
    """Something that the user has to mend before anything is started; `lines` says what, one a line."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Checked:
    """All that the start needs. `file` is None where the file is ours to write, with `text` in it."""

    config: Config
    file: Path | None
    text: str
    simulated: tuple[demo.SimulatedReplica, ...]
    envoy: Path


def start_up(request: Request) -> int:
    """Returns the exit code, when everything has ended."""
    began_s = time.monotonic()
    try:
        checked = check(request)
    except RefusedError as refused:
        for line in refused.lines:
            print(line, file=sys.stderr)  # bare, so that editors can follow FILE:LINE
        return MISUSED
    raise_limit()
    console = Console(sys.stdout.fileno(), sys.stderr.fileno(), live=sys.stderr.isatty())
    try:
        return asyncio.run(_run(request, checked, console, began_s))
    except CertificateError as error:
        console.say(str(error))
        return MISUSED
    except OSError as error:
        console.say(f"cannot make a directory for sockets: {error}")
        return FAILED
    finally:
        console.close()


def check(request: Request) -> Checked:
    """Starts nothing. Raises RefusedError."""
    text = ""
    try:
        if request.file is None and request.demo:
            text = demo.file_text(ports.free_ports(request.replicas, demo.FIRST_PORT, demo.HOST))
            config = parse(text, DEFAULT_FILE)
        else:
            config = config_file.read(request.file or DEFAULT_FILE)
    except ConfigError as error:
        raise RefusedError(*map(str, error.problems)) from None
    simulated = demo.simulated(config) if request.demo else ()
    wanted = listeners(config, simulated)
    if problems := (*ports.overlapping(wanted), *ports.problems(wanted)):
        raise RefusedError(*problems)
    try:
        envoy = envoy_binary.find(request.envoy)
    except envoy_binary.NoEnvoyError as error:
        raise RefusedError(str(error)) from None
    file = None if text else Path(request.file or DEFAULT_FILE).absolute()
    return Checked(config, file, text, simulated, envoy.path)


async def _run(request: Request, checked: Checked, console: Console, began_s: float) -> int:
    def ready() -> None:
        console.progress_done()
        console.show(ready_block(checked.config, time.monotonic() - began_s))

    with run_directory() as run:
        installation = _installation(request, checked, run)
        supervisor = Supervisor(children(installation, console.say), console)
        for number in _ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
        problem = await supervisor.run(ready)
    console.progress_done()
    if problem is None:
        return DONE
    console.say(problem)
    return FAILED


def _installation(request: Request, checked: Checked, run: Path) -> Installation:
    file = checked.file
    if file is None:
        file = run / DEFAULT_FILE
        file.write_text(checked.text)
    installation = Installation(
        config=checked.config,
        file=file,
        run=run,
        simulated=checked.simulated,
        pickers=request.pickers,
        envoy=checked.envoy,
        envoy_workers=request.workers or default_workers(),
        secret=secrets.token_hex(32),
        tls=ProcessTls(checked.config.tls, file).client() if checked.config.tls.api is not None else None,
    )
    installation.state.mkdir()
    return installation


def _ending_signals() -> tuple[signal.Signals, ...]:
    """With nohup, the terminal may go: SIGHUP is ignored then, and stays so."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)
