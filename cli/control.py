"""`homing control`: the control service."""

from __future__ import annotations

import click

from homing.cli.addresses import RefusedError, checked
from homing.cli.config_file import config_option, load, sds_option


@click.command()
@config_option
@click.option("--picker", "pickers", multiple=True, metavar="ADDR", help="Where Envoy finds a picker. Repeatable.")
@click.option("--standby", metavar="ADDR", help="Where Envoy finds the picker that waits.")
@click.option(
    "--picker-http",
    multiple=True,
    metavar="[NAME=]ADDR",
    help="Health and metrics of a picker, and its name. Repeatable.",
)
@click.option("--state-dir", metavar="DIR", help="For the files from which Envoy boots while this service is away.")
@sds_option
def command(
    config_path: str,
    pickers: tuple[str, ...],
    standby: str | None,
    picker_http: tuple[str, ...],
    state_dir: str | None,
    sds: str,
) -> None:
    """Run the control service: membership, health, xDS for Envoy, the pickers' feed, the API.

    ADDR is unix:/path or host:port. Reloads the file on a change and on SIGHUP.
    """
    config = load(config_path)

    from homing.cli.ports import Wanted, overlapping, problems

    named = dict(map(_named, picker_http))
    for address in (*pickers, *([standby] if standby else []), *named.values()):
        checked(address)
    wanted = (Wanted("xds", config.xds), Wanted("api", config.api))
    if lines := (*overlapping(wanted), *problems(wanted)):
        raise RefusedError("; ".join(lines))

    import logging
    import os
    from pathlib import Path

    import uvloop

    # gRPC's own word about each process that is started while it has threads; the renderer of templates needs none
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else a line for each handshake that fails

    from homing.control import resources
    from homing.control.certificates import CertificateError
    from homing.control.envoy_config import Wiring
    from homing.control.process import Options, run

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("httpx", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    options = Options(
        Path(config_path), Wiring(pickers, standby, sds), named, Path(state_dir).absolute() if state_dir else None
    )
    try:
        uvloop.run(run(config, options, resources))
    except (OSError, CertificateError) as error:
        raise RefusedError(str(error)) from None


def _named(text: str) -> tuple[str, str]:
    """NAME=ADDR; without a name the address is the name."""
    name, equals, address = text.partition("=")
    return (name, address) if equals and "/" not in name else (text, text)
