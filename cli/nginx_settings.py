"""The options of everything that writes NGINX's configuration, in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from homing.cli.addresses import checked, datagrams

if TYPE_CHECKING:
    from homing.control.nginx_config import Settings


class NginxOptions(TypedDict):
    """What the options gave."""

    njs: bool
    njs_module: str
    access_log: str
    pickers: tuple[str, ...]
    standby: str | None
    logs: tuple[str, ...]
    budget_ms: int


Command = TypeVar("Command", bound=Callable[..., object])

OPTIONS = (
    click.option("--njs/--no-njs", default=True, show_default=True, help="Without njs: the hash only, no bodies."),
    click.option("--njs-module", metavar="PATH", default="modules/ngx_http_js_module.so", show_default=True),
    click.option("--access-log", metavar="PATH", default="/var/log/nginx/homing.log", show_default=True),
    click.option("--picker", "pickers", multiple=True, metavar="ADDR", help="A picker's HTTP port (ext-proc --http)."),
    click.option("--standby", metavar="ADDR", help="The HTTP port of a picker that takes over."),
    click.option("--log", "logs", multiple=True, metavar="ADDR", help="Where a picker hears outcomes, HOST:PORT."),
    click.option(
        "--budget-ms", default=20, show_default=True, type=click.IntRange(1, 10_000), help="For a picker's answer."
    ),
)


def nginx_options(command: Command) -> Command:
    """Adds them. The command takes `**given: Unpack[NginxOptions]` and gives them to `settings_of`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def settings_of(given: NginxOptions, config_path: str) -> Settings:
    """Raises click's errors for what does not fit together."""
    from homing.control.nginx_config import Settings

    standby = given["standby"]
    if given["pickers"] and not given["njs"]:
        raise click.UsageError("--picker needs njs: only the script can ask")
    for option, addresses in (("--picker", given["pickers"]), ("--standby", (standby,) if standby else ())):
        for address in addresses:
            checked(address, option)
    for address in given["logs"]:
        datagrams(address, "--log")
    return Settings(**given, beside=Path(config_path))
