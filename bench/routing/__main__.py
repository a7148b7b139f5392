"""`python -m bench.routing run`, then `report`; `make bench-routing` does both."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
import uvloop

from bench.gateway import peers
from bench.gateway.contenders import StartError
from bench.gateway.report import machine, versions
from bench.routing import drawing, page
from bench.routing.contenders import Contender, contenders
from bench.routing.report import Report, figures, overview, read, table
from bench.routing.stand import Conditions, run, standing
from bench.routing.work import Speaker, Work
from bench.routing.workloads import WORKLOADS, NoTraceError, Shape

BUILD = Path("build")
_POSITIVE = click.FloatRange(0.01, 10_000)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def main() -> None:
    """Where requests go, and what that is worth: homing beside its peers, on the same simulated replicas."""


@main.command("run", context_settings={"show_default": True})
@click.option("--workload", "workloads", type=click.Choice(list(WORKLOADS)), multiple=True, help="Default: all.")
@click.option("--load", "loads", type=_POSITIVE, multiple=True, default=(0.7, 0.95), help="1 is near saturation.")
@click.option("--contender", "only", multiple=True, help="By name; default: all.")
@click.option("--trace", type=_FILE, help="Mooncake's conversation trace; without it `trace` is left out.")
@click.option("--until-s", type=_POSITIVE, default=240.0, help="Simulated seconds in which requests come.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(0,), help="Another one is another draw.")
@click.option("--speed", type=_POSITIVE, default=Conditions().speed, help="Of the replicas, against an A100.")
@click.option("--time-scale", type=_POSITIVE, default=Conditions().time_scale, help="Simulated seconds in a real one.")
@click.option(
    "--grace",
    type=click.FloatRange(1, 100),
    default=Conditions().grace,
    help="A run ends so many times the span of its arrivals later.",
)
@click.option(
    "--settle-s",
    type=click.FloatRange(0, 3600),
    default=Conditions().settle_s,
    help="Real seconds from the start to the first request.",
)
@click.option("--peers/--no-peers", "with_peers", default=True, help="The routers from PyPI.")
@click.option("--out", type=_DIRECTORY, default=BUILD / "routing", help="A JSON file for each workload and load.")
def run_command(
    workloads: Sequence[str],
    loads: Sequence[float],
    only: Sequence[str],
    trace: Path | None,
    until_s: float,
    seeds: Sequence[int],
    speed: float,
    time_scale: float,
    grace: float,
    settle_s: float,
    with_peers: bool,
    out: Path,
) -> None:
    """Each contender in turn on fresh replicas. What is measured again replaces what is there of the same work.

    Exit code 1: a contender did not start, or lost a request.
    """
    found = contenders(peers.installed(BUILD / "gateway-peers").absolute() if with_peers else None)
    if unknown := [name for name in only if name not in found]:
        raise click.UsageError(f"no contender {unknown[0]!r}; there are: {'; '.join(found)}")
    conditions = Conditions(speed=speed, time_scale=time_scale, grace=grace, settle_s=settle_s)
    speaker, failed = Speaker(), False
    out.mkdir(parents=True, exist_ok=True)
    names = workloads or [name for name in WORKLOADS if name != "trace" or trace]
    for name, load, seed in itertools.product(names, loads, seeds):
        try:
            work = WORKLOADS[name](Shape(load, until_s, seed, trace), speaker)
        except NoTraceError as error:
            raise click.UsageError(str(error)) from None
        report = _known(out, work, load, seed, conditions)
        for contender in (found[each] for each in only or found):
            try:
                report = _measured(contender, work, conditions, report)
            except StartError as error:
                click.echo(f"{contender.name}: {error}", err=True)
                failed = True
                continue
            (out / f"{report.stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
            failed |= bool(report.figures[-1].lost)
        click.echo(table(report))
    if failed:
        raise click.ClickException("not all is as it should be")


@main.command("report", context_settings={"show_default": True})
@click.argument("directory", type=_DIRECTORY, default=BUILD / "routing")
@click.option("--png/--no-png", default=True, help="Charts; what draws them comes from PyPI into build/.")
def report_command(directory: Path, png: bool) -> None:
    """The tables of all that is in DIRECTORY, as text and as a page, with charts."""
    reports = read(directory)
    if not reports:
        raise click.ClickException(f"nothing was measured into {directory}")
    charts: list[Path] = []
    if png:
        python = peers.installed(BUILD / "routing-charts", drawing.PINNED).absolute() / "python"
        subprocess.run((str(python), str(Path(drawing.__file__)), str(directory)), check=True)
        charts = sorted(directory.glob("*.png"))
    (directory / "routing.html").write_text(page.html(reports, charts))
    click.echo("\n\n".join([overview(reports), *map(table, reports)]))


def _known(out: Path, work: Work, load: float, seed: int, conditions: Conditions) -> Report:
    """What was measured of the same work under the same conditions, if anything."""
    turns, sessions, digest = len(work.turns), work.sessions, work.digest()
    new = Report(work.name, load, seed, turns, sessions, digest, conditions, machine(), versions(), [])
    file = out / f"{new.stem}.json"
    if file.exists():
        known = msgspec.json.decode(file.read_bytes(), type=Report)
        if (known.digest, known.conditions) == (digest, conditions):
            return known
    return new


def _measured(contender: Contender, work: Work, conditions: Conditions, report: Report) -> Report:
    with (
        tempfile.TemporaryDirectory(prefix="rt") as directory,
        standing(contender, work, conditions, Path(directory) / "s") as stand,
    ):
        time.sleep(conditions.settle_s)
        done = uvloop.run(run(stand, contender))
    told = figures(done, work, conditions)
    click.echo(
        f"{work.name} {report.load:g} {contender.name}: TTFT p90 {told.p90_s:.2f} p99 {told.p99_s:.2f} s, "
        f"hit rate {told.hit_rate:.1%}, {told.unfinished} not ended, {sum(told.lost.values())} lost",
        err=True,
    )
    return report.with_(told)


if __name__ == "__main__":
    main()
