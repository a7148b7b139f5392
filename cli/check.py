"""`homing check`: whether the file is a configuration, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from homing.cli.config_file import InvalidConfig, config_option, load

if TYPE_CHECKING:
    from homing.core.config import Config, Problem


@dataclass(frozen=True, slots=True)
class PoolSummary:
    id: str
    names: tuple[str, ...]  # the served one first
    hash: str
    replicas: tuple[str, ...]  # ids


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` prints: either problems, or the pools and listeners."""

    file: str
    ok: bool
    problems: tuple[Problem, ...]
    pools: tuple[PoolSummary, ...]
    listeners: dict[str, str]


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, config_path: str, as_json: bool) -> None:
    """Validate the file. Exit 0 with a summary, or 2 with every problem: line, key, found, allowed."""
    try:
        report = summary(config_path, load(config_path))
    except InvalidConfig as e:
        if not as_json:
            raise
        click.echo(encoded(Report(config_path, False, e.problems, (), {})))
        ctx.exit(e.exit_code)
    click.echo(encoded(report) if as_json else in_words(report))


def summary(path: str, config: Config) -> Report:
    fleet = config.fleet()
    pools = tuple(PoolSummary(p.id, p.names, p.hash, tuple(r.id for r in p.replicas)) for p in fleet.pools)
    listeners = {"listen": config.listen, "admin": config.admin, "xds": config.xds, "api": config.api}
    return Report(path, True, (), pools, {name: str(address) for name, address in listeners.items()})


def encoded(report: Report) -> str:
    import msgspec

    return msgspec.json.encode(report).decode()


def in_words(report: Report) -> str:
    replicas = sum(len(pool.replicas) for pool in report.pools)
    lines = [f"{report.file}: valid; {counted(len(report.pools), 'pool')}, {counted(replicas, 'replica')}"]
    lines += [
        f"  pool {pool.id}: {counted(len(pool.replicas), 'replica')}, serves {', '.join(pool.names)} ({pool.hash})"
        for pool in report.pools
    ]
    lines += [f"  {name} on {address}" for name, address in report.listeners.items()]
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
