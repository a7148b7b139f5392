"""`python -m bench.placement compare|search`: the rules side by side, or the constants one by one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bench.placement.product import Homing
from bench.placement.report import Ratios, against_the_best, behind, markdown, plain, spread
from bench.placement.rules import RULES
from bench.placement.search import CONSTANTS, search
from bench.placement.workloads import batching, makers
from bench.placement.world import Contender, Result, Workload, World

OURS = ("homing_1", "homing_2", "homing_8", "homing_1_index", "homing_8_index")

_TRACE = click.option(
    "--trace", type=click.Path(path_type=Path, exists=True), help="The trace of Mooncake, as JSON lines."
)
_ONLY = click.option("--only", help="Workloads, with commas between; all without it.")
_LOAD = click.option(
    "--batching", "load", type=float, help="The workloads of bench.routing at this load, before replicas that batch."
)


def contenders() -> list[Contender]:
    """New ones: each remembers."""
    ours = [Homing(1), Homing(2), Homing(8), Homing(1, exact=True), Homing(8, exact=True)]
    return [*(rule() for rule in RULES), *ours]


def chosen(trace: Path | None, only: str | None, load: float | None, seed: int = 0) -> list[Workload]:
    made = makers(trace, seed) if load is None else batching(trace, seed, load)
    names = only.split(",") if only else list(made)
    return [made[name]() for name in names]


@click.group()
def main() -> None:
    """A discrete-event comparison around the product's own placer."""


@main.command()
@_TRACE
@_ONLY
@_LOAD
@click.option("--json", "out", type=click.Path(path_type=Path), help="Where the numbers go.")
def compare(trace: Path | None, only: str | None, load: float | None, out: Path | None) -> None:
    """Every contender on every workload: TTFT p90 / p99 in seconds."""
    results: dict[str, dict[str, Result]] = {}
    for workload in chosen(trace, only, load):
        row = results[workload.name] = {}
        for contender in contenders():
            row[contender.name] = World(workload, contender).run()
            click.echo(f"{workload.name} {contender.name} {row[contender.name]}", err=True)
    click.echo(markdown(results))
    for workload_name, ratios in behind(results, OURS).items():
        click.echo(f"{workload_name}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    if out is not None:
        out.write_text(json.dumps(plain(results), indent=1) + "\n")


@main.command()
@_TRACE
@_ONLY
@_LOAD
@click.option("--seeds", default=5)
def seeds(trace: Path | None, only: str | None, load: float | None, seeds: int) -> None:
    """How many times the best of the others ours have, TTFT p90 / p99: the median over the seeds (least-most)."""
    ratios: dict[str, dict[str, list[Ratios]]] = {}
    for seed in range(seeds):
        for workload in chosen(trace, only, load, seed):
            row = {c.name: World(workload, c).run() for c in contenders()}
            for name, pair in against_the_best(row, OURS).items():
                ratios.setdefault(workload.name, {}).setdefault(name, []).append(pair)
                click.echo(f"{seed} {workload.name} {name} {pair[0]:.3f} {pair[1]:.3f}", err=True)
    click.echo(spread(ratios))


@main.command("search")
@_TRACE
@_ONLY
@_LOAD
@click.option("--constants", default=",".join(CONSTANTS), help="With commas between.")
@click.option("--placers", default=1)
def search_command(trace: Path | None, only: str | None, load: float | None, constants: str, placers: int) -> None:
    """Each constant at some other values: how many times the score (p90 and p99) of the defaults, by workload."""
    workloads = chosen(trace, only, load)
    click.echo("| constant | value | " + " | ".join(w.name for w in workloads) + " |")
    click.echo("|---" * (len(workloads) + 2) + "|")
    for name, value, ratios in search(workloads, constants.split(","), placers):
        click.echo(f"| `{name}` | {value:g} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")


if __name__ == "__main__":
    main()
