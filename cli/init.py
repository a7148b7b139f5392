"""`homing init`: a first `homing.yaml` from what is there."""

from __future__ import annotations

from pathlib import Path

import click

from homing.cli.config_file import InvalidConfig


@click.command("init")
@click.option("--from-engine", "engines", multiple=True, metavar="URL", help="A vLLM server that runs. Repeatable.")
@click.option("--from-envoy", "envoy", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="With --from-engine https://: whom to trust, other than the system's authorities.",
)
@click.option(
    "-o", "--output", default="homing.yaml", show_default=True, metavar="FILE", help="Not overwritten; - for stdout."
)
def command(engines: tuple[str, ...], envoy: Path | None, ca: str | None, output: str) -> None:
    """Write a first file: from engines (those that serve the same model are a pool), or from the clusters of Envoy's
    configuration."""
    if bool(engines) == (envoy is not None):
        raise click.UsageError("say either --from-engine URL (as often as there are engines) or --from-envoy FILE")
    from homing.control.initial import InitError
    from homing.core.config import ConfigError, parse

    if output != "-" and Path(output).exists():
        raise click.ClickException(f"{output} is there already: say another name by -o")
    try:
        text = _from_envoy(envoy) if envoy is not None else _from_engines(engines, ca)
        parse(text, output)
    except InitError as error:
        raise click.ClickException(str(error)) from None
    except ConfigError as error:  # a cluster whose name cannot be a pool's, for one
        raise InvalidConfig(error) from None
    if output == "-":
        click.echo(text, nl=False)
        return
    Path(output).write_text(text)
    click.echo(f"{output} is written; `homing check -c {output}` says what it means")


def _from_engines(urls: tuple[str, ...], ca: str | None) -> str:
    import ssl

    import httpx

    from homing.control.initial import ask_engine, file_text, pools_of

    try:
        trusted = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise click.ClickException(f"{ca}: no certificates in PEM") from None
    with httpx.Client(trust_env=False, verify=trusted) as client:
        found = [ask_engine(client, url) for url in urls]
    return file_text(pools_of(found, ca or ""), ", ".join(urls))


def _from_envoy(path: Path) -> str:
    from homing.control.initial import file_text, pools_of_envoy

    return file_text(pools_of_envoy(path.read_text()), path.name)
