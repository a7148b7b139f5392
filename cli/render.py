"""`homing render`: Envoy's configuration, whole or as pieces to paste into one that exists."""

from __future__ import annotations

import click

from homing.cli.addresses import checked
from homing.cli.config_file import config_option, load

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
    "--picker",
    "pickers",
    multiple=True,
    metavar="ADDR",
    default=(DEFAULT_PICKER,),
    show_default=True,
    help="Where a picker listens (homing ext-proc --listen): unix:PATH or HOST:PORT; may be repeated.",
)
@click.option("--standby", metavar="ADDR", help="A picker that takes over when the others are gone.")
def envoy(
    config_path: str, names: tuple[str, ...], all_fragments: bool, listing: bool, pickers: tuple[str, ...], standby: str
) -> None:
    """A complete static configuration for Envoy, or fragments of it."""
    from homing.control import envoy_config as envoy_configuration

    config = load(config_path)
    fleet = config.fleet()
    wiring = envoy_configuration.Wiring(
        tuple(checked(picker, "--picker") for picker in pickers), checked(standby, "--standby") if standby else None
    )
    known = envoy_configuration.fragments(fleet)
    if listing:
        for fragment in known:
            where = click.wrap_text(fragment.where, 100, initial_indent="    ", subsequent_indent="    ")
            click.echo(f"{fragment.name}\n{where}")
        return
    if not names and not all_fragments:
        click.echo(envoy_configuration.render_bootstrap(config, fleet, wiring), nl=False)
        return
    by_name = {fragment.name: fragment for fragment in known}
    if unknown := [name for name in names if name not in by_name]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(by_name)}", param_hint="--fragment")
    chosen = known if all_fragments else [by_name[name] for name in names]
    texts = (envoy_configuration.render_fragment(fragment, config, fleet, wiring) for fragment in chosen)
    click.echo("---\n".join(texts), nl=False)
