"""`homing check`: whether the file is a configuration, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from homing.cli.config_file import InvalidConfig, config_option, load

if TYPE_CHECKING:
    from homing.cli.template_check import TemplateSummary
    from homing.core.config import Config, Problem


@dataclass(frozen=True, slots=True)
class PoolSummary:
    id: str
    names: tuple[str, ...]  # the served one first
    hash: str
    replicas: tuple[str, ...]  # ids


PINS = {
    "memory": "  pins in memory: enough for one gateway, several need sessions.pins",
    "redis": "  pins in Redis",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` prints: either problems, or the pools and listeners."""

    file: str
    ok: bool
    problems: tuple[Problem, ...]
    pools: tuple[PoolSummary, ...]
    listeners: dict[str, str]
    templates: tuple[TemplateSummary, ...] = ()
    pins: str = ""
    """memory or redis: where the homes of sessions are kept. Nothing of the URL."""
    drift: tuple[str, ...] = ()
    """Where a running Envoy differs from the file."""
    unusable: tuple[str, ...] = ()
    """Files that the file names (certificates, keys, tokens, secrets) and that cannot be used on this machine."""


@click.command()
@config_option
@click.option("--engine", "engines", is_flag=True, help="Ask the engines what their chat templates do.")
@click.option("--envoy-admin", metavar="URL", help="Say where the Envoy with this admin interface differs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, config_path: str, engines: bool, envoy_admin: str | None, as_json: bool) -> None:
    """Validate the file. Exit 0 with a summary, or 2 with every problem: line, key, found, allowed.

    Chat templates in files are probed, those of engines with --engine: exit 1 when one cannot be had, or when the
    Envoy at --envoy-admin differs from the file. Certificates, tokens and secrets in files that cannot be used on this
    machine are named, and are no failure: they may be where it is to run.
    """
    try:
        config = load(config_path)
        report = summary(config_path, config, engines)
    except InvalidConfig as e:
        if not as_json:
            raise
        click.echo(encoded(Report(config_path, False, e.problems, (), {})))
        ctx.exit(e.exit_code)
    if envoy_admin is not None:
        report = replace(report, drift=drift(config, envoy_admin))
    click.echo(encoded(report) if as_json else in_words(report))
    if report.drift or any(template.trouble for template in report.templates):
        ctx.exit(1)


def summary(path: str, config: Config, engines: bool) -> Report:
    import asyncio
    from pathlib import Path

    from homing.cli.named_files import unusable
    from homing.cli.template_check import templates

    fleet = config.fleet()
    pools = tuple(PoolSummary(p.id, p.names, p.hash, tuple(r.id for r in p.replicas)) for p in fleet.pools)
    listeners = {"listen": config.listen, "admin": config.admin, "xds": config.xds, "api": config.api}
    pins = "memory" if config.sessions.pins == "memory" else "redis"
    listening = {name: str(address) for name, address in listeners.items()}
    found = asyncio.run(templates(config, Path(path), engines))
    return Report(path, True, (), pools, listening, found, pins, unusable=unusable(config, Path(path)))


def drift(config: Config, admin: str) -> tuple[str, ...]:
    """Raises click.ClickException when Envoy does not answer."""
    from homing.control.drift import DriftError, ask, drifts
    from homing.control.envoy_config import filter_names
    from homing.control.resources import canonical
    from homing.control.stale import read_static, stale

    try:
        running = ask(admin if "//" in admin else f"http://{admin}")
    except DriftError as error:
        raise click.ClickException(str(error)) from None
    fleet = config.fleet()
    pasted = read_static(running.text)
    return (*drifts(fleet, filter_names(), running), *stale(config, fleet, pasted, canonical))


def encoded(report: Report) -> str:
    import msgspec

    return msgspec.json.encode(report).decode()


def in_words(report: Report) -> str:
    replicas = sum(len(pool.replicas) for pool in report.pools)
    lines = [f"{report.file}: valid; {counted(len(report.pools), 'pool')}, {counted(replicas, 'replica')}"]
    templates = {template.pool: template.lines for template in report.templates}
    for pool in report.pools:
        lines.append(
            f"  pool {pool.id}: {counted(len(pool.replicas), 'replica')}, serves {', '.join(pool.names)} ({pool.hash})"
        )
        lines += templates.get(pool.id, [])
    lines += [f"  {name} on {address}" for name, address in report.listeners.items()]
    lines.append(PINS[report.pins])
    lines += [f"  cannot be used here: {line}" for line in report.unusable]
    lines += [f"  Envoy differs: {line}" for line in report.drift]
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
