"""`homing render`: the data plane's configuration, whole or as pieces to paste into one that exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

import click

from homing.cli.addresses import RefusedError, checked
from homing.cli.config_file import config_option, load, sds_option
from homing.cli.nginx_settings import NginxOptions, nginx_options, settings_of

if TYPE_CHECKING:
    from homing.core.config import Config

DEFAULT_PICKER = "unix:/run/homing/picker.sock"


@click.group("render")
def command() -> None:
    """Write the data plane's configuration."""


@command.command("envoy")
@config_option
@click.option("--fragment", "names", multiple=True, metavar="NAME", help="One piece to paste; may be repeated.")
@click.option("--all-fragments", is_flag=True, help="Every piece to paste, each with a comment where it goes.")
@click.option("--list", "listing", is_flag=True, help="The names of the fragments and where they go.")
@click.option(
    "--into",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Print FILE with every fragment that is marked in it: `# fragment NAME`, `# end of fragment NAME`.",
)
@click.option(
    "--picker",
    "pickers",
    multiple=True,
    metavar="ADDR",
    default=(DEFAULT_PICKER,),
    show_default=True,
    help="Where a picker listens (homing ext-proc --listen): unix:PATH or HOST:PORT; may be repeated.",
)
@click.option("--standby", metavar="ADDR", help="A picker that takes over when the others are gone.")
@click.option("--ads", is_flag=True, help="All that changes comes from the control service (`xds`, or `control.xds`).")
@click.option("--pool", "pools", multiple=True, metavar="ID", help="With --ads: these pools only; may be repeated.")
@click.option("--node", metavar="ID", default="homing-envoy", show_default=True, help="With --ads: who this Envoy is.")
@sds_option
def envoy(
    config_path: str,
    names: tuple[str, ...],
    all_fragments: bool,
    listing: bool,
    into: Path | None,
    pickers: tuple[str, ...],
    standby: str | None,
    ads: bool,
    node: str,
    pools: tuple[str, ...],
    sds: str,
) -> None:
    """A complete configuration for Envoy, static or with --ads, or fragments of it."""
    from homing.control import envoy_config as envoy_configuration

    config = load(config_path)
    fleet = config.fleet()
    wiring = envoy_configuration.Wiring(
        tuple(checked(picker, "--picker") for picker in pickers),
        checked(standby, "--standby") if standby else None,
        sds,
    )
    known = envoy_configuration.fragments(config, fleet)

    def rendered(fragment: envoy_configuration.Fragment) -> str:
        return envoy_configuration.render_fragment(fragment, config, fleet, wiring)

    if listing:
        _list(known)
    elif into is not None:
        click.echo(_filled_in(into, lambda name: rendered(_chosen(known, (name,), False)[0])), nl=False)
    elif chosen := _chosen(known, names, all_fragments):
        click.echo("---\n".join(map(rendered, chosen)), nl=False)
    else:
        source = envoy_configuration.Source(ads=ads, node=node, pools=_known(pools, config))
        click.echo(envoy_configuration.render_bootstrap(config, fleet, wiring, source), nl=False)


@command.command("sds")
@config_option
@click.option(
    "--out", metavar="DIR", required=True, type=click.Path(file_okay=False, path_type=Path), help="Where they are put."
)
def sds_files(config_path: str, out: Path) -> None:
    """The files by which Envoy finds certificates and keys, one for each, and takes those that are replaced.

    They hold paths, no secrets. Nothing is written where the file has no tls."""
    from homing.control.envoy_tls import write_secret_files

    write_secret_files(load(config_path), Path(config_path), out)


@command.command("nginx")
@config_option
@click.option("--fragment", "names", multiple=True, metavar="NAME", help="One piece to include; may be repeated.")
@click.option("--all-fragments", is_flag=True, help="Every piece to include, each with a comment where it goes.")
@click.option("--list", "listing", is_flag=True, help="The names of the fragments and where they go.")
@nginx_options
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write nginx.conf and homing.js, or with --all-fragments every piece as a file of its own, into DIR.",
)
def nginx(
    config_path: str,
    names: tuple[str, ...],
    all_fragments: bool,
    listing: bool,
    out: Path | None,
    **given: Unpack[NginxOptions],
) -> None:
    """A complete configuration for NGINX (and with njs its script), or fragments of it.

    Works alone. With --picker (and --log, that it may learn the outcomes) the script asks before each request."""
    from homing.control import nginx_config

    how = settings_of(given, config_path)
    config = load(config_path)
    fleet = config.fleet()
    known = nginx_config.fragments(fleet, how)
    if listing:
        _list(known)
        return
    chosen = _chosen(known, names, all_fragments)
    try:
        if chosen:
            texts = {f.file: nginx_config.render_fragment(f, config, fleet, how) for f in chosen}
        else:
            texts = nginx_config.render_whole(config, fleet, how)
    except nginx_config.NginxTlsError as error:
        raise RefusedError(str(error)) from None
    if out is None:
        click.echo("".join(texts.values()) if chosen else texts["nginx.conf"], nl=False)
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text)


def _filled_in(file: Path, rendered: Callable[[str], str]) -> str:
    from homing.cli.pasting import PastingError, filled_in

    try:
        return filled_in(file.read_text(), rendered)
    except PastingError as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="--into") from None


class _Fragment(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str: ...


AnyFragment = TypeVar("AnyFragment", bound=_Fragment)


def _list(known: Sequence[_Fragment]) -> None:
    for fragment in known:
        where = click.wrap_text(fragment.where, 100, initial_indent="    ", subsequent_indent="    ")
        click.echo(f"{fragment.name}\n{where}")


def _chosen(known: Sequence[AnyFragment], names: Sequence[str], every: bool) -> Sequence[AnyFragment]:
    """Those asked for, in the order asked for; none if the whole is wanted."""
    by_name = {fragment.name: fragment for fragment in known}
    if unknown := [name for name in names if name not in by_name]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(by_name)}", param_hint="--fragment")
    return known if every else [by_name[name] for name in names]


def _known(pools: tuple[str, ...], config: Config) -> tuple[str, ...]:
    known = [pool.id for pool in config.pools]
    for pool in pools:
        if pool not in known:
            raise click.BadParameter(f"there is no pool {pool!r}; there are {', '.join(known)}", param_hint="--pool")
    return pools
