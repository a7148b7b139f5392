"""`homing ext-proc`: one picker behind Envoy's ext_proc filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from homing.cli.addresses import RefusedError, checked, datagrams
from homing.cli.config_file import config_option, load

if TYPE_CHECKING:
    from homing.core.config import Config


@click.command("ext-proc")
@config_option
@click.option(
    "--listen",
    default="unix:/run/homing/picker.sock",
    show_default=True,
    metavar="ADDR",
    help="Where Envoy finds it: unix:PATH or HOST:PORT.",
)
@click.option(
    "--http",
    "http_address",
    default="127.0.0.1:8601",
    show_default=True,
    metavar="ADDR",
    help="Health and metrics: unix:PATH or HOST:PORT.",
)
@click.option(
    "--nginx-log",
    metavar="ADDR",
    help="Where NGINX's access log comes in, by UDP: HOST:PORT. The HTTP port then decides for NGINX.",
)
@click.option(
    "--control",
    metavar="URL[,URL...]",
    help="The control service, or several that act as one. Without it the picker follows the file itself.",
)
@click.option("--name", default="picker", show_default=True, help="Its name in the control service's lists.")
@click.option(
    "--transport",
    type=click.Choice(["h2", "grpc"]),
    default="h2",
    show_default=True,
    help="What carries Envoy's messages: nghttp2, or gRPC's own library, which takes about three times as long.",
)
@click.option(
    "--sibling",
    "siblings",
    multiple=True,
    metavar="ADDR",
    help="The --http address of another picker of this gateway, which shares what it knows; may be repeated.",
)
@click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="ADDR",
    help="The --listen address of each picker that Envoy shares the sessions out to, this one's too; may be repeated.",
)
def command(
    config_path: str,
    listen: str,
    http_address: str,
    nginx_log: str | None,
    control: str | None,
    name: str,
    transport: Literal["h2", "grpc"],
    siblings: tuple[str, ...],
    shards: tuple[str, ...],
) -> None:
    """Run one picker: it decides where each request goes.

    Without --control it reads the file, probes the replicas and reloads on a change and on SIGHUP.
    """
    checked(listen, "--listen")
    checked(http_address, "--http")
    for sibling in siblings:
        checked(sibling, "--sibling")
    for shard in shards:
        checked(shard, "--shard")
    log_address = datagrams(nginx_log, "--nginx-log") if nginx_log else None
    config = load(config_path)
    _guarded(listen, config)

    import logging
    import os
    from pathlib import Path

    import uvloop

    # gRPC's own lines about an address that cannot be had; ours says it
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # it starts processes that know nothing of gRPC

    from homing.control.certificates import CertificateError
    from homing.control.secrets import SecretError
    from homing.ext_proc.pins.sharing import SharingError
    from homing.ext_proc.process import Options, run

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("httpx", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # says so for every session id that is not UTF-8, and shows it
    logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)
    options = Options(Path(config_path), listen, http_address, control, name, transport, siblings, log_address, shards)
    try:
        uvloop.run(run(config, options))
    except (CertificateError, SecretError, SharingError) as error:
        raise RefusedError(str(error)) from None
    except OSError as error:
        # with an errno it comes from the HTTP listener's system calls, which do not say for which address
        said = f"cannot listen on {http_address}: {os.strerror(error.errno)}" if error.errno else str(error)
        raise RefusedError(said) from None


def _guarded(listen: str, config: Config) -> None:
    """Raises RefusedError where others could reach the picker and none of them is asked who they are."""
    from homing.core.config import Address

    asks = config.tls.picker is not None and config.tls.picker.client_ca is not None
    if listen.startswith("unix:") or asks or config.tls.trusted_network:
        return
    if not Address.parse(listen).is_loopback:
        raise RefusedError(
            f"--listen: {listen} is wider than loopback, and nobody who connects is asked who they are: give it"
            " tls.picker with a client_ca in the file, or tls.trusted_network: true"
        )
