"""`python -m bench.gateway`: every contender, in turns, on one machine; a table, and JSON."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from bench.gateway import peers
from bench.gateway.contenders import Contender, Stand, StartError, running
from bench.gateway.load import Plan, Result
from bench.gateway.measures import HOMING, LOADS, Load, Sample, wrong
from bench.gateway.report import Report, machine, versions
from bench.gateway.streams import MAX_STREAMS, Streams, possible

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--rounds", default=8, show_default=True, help="How often each is measured.")
@click.option("--seconds", default=0.8, show_default=True, help="How long each time.")
@click.option("--streams", default=MAX_STREAMS, show_default=True, help="Server-sent event streams at once; 0: none.")
@click.option("--transport", type=click.Choice(["h2", "grpc"]), default="h2", show_default=True)
@click.option("--peers/--no-peers", "with_peers", default=True, show_default=True)
@click.option("--json", "json_file", type=_FILE, default=Path("build/gateway.json"), show_default=True)
@click.option("--table", "table_file", type=_FILE, help="Where the table goes too.")
def main(
    rounds: int,
    seconds: float,
    streams: int,
    transport: str,
    with_peers: bool,
    json_file: Path,
    table_file: Path | None,
) -> None:
    """Exit code 0: measured, and every answer was right. 1: some were not, or something did not start."""
    possible()  # processes inherit the limit of open files
    installed = peers.installed(Path("build/gateway-peers")) if with_peers else None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gw") as directory,
            running(Path(directory), installed, transport) as stand,
        ):
            samples = _interleaved(stand, rounds, seconds)
            streamed = _streamed(stand, possible(streams)) if streams else None
    except StartError as error:
        raise click.ClickException(str(error)) from None
    found = dict(wrong(samples)) | (dict(streamed.wrong) if streamed else {})
    report = Report(machine(), versions(), samples, streamed, found)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    if table_file is not None:
        table_file.write_text(report.markdown())
    click.echo(report.markdown(), nl=False)
    if found:
        raise click.ClickException("not every answer was right")


def _interleaved(stand: Stand, rounds: int, seconds: float) -> list[Sample]:
    """Each contender of each load once, then again: what disturbs the machine disturbs all."""
    samples = []
    for number in range(rounds):
        for load in LOADS:
            for name in load.contenders:
                if name in stand.contenders:
                    samples.append(_sample(stand, load, stand.contenders[name], number, seconds))
    return samples


def _sample(stand: Stand, load: Load, contender: Contender, number: int, seconds: float) -> Sample:
    picker = f"{contender.process}-picker"
    watched = [name for name in (contender.process, picker) if name in stand.processes.running]
    cpu = {name: stand.processes.cpu_s(name) for name in watched}
    opened = stand.fail_opens(contender)
    result = ask(stand, load.plan(contender, seconds))
    spent = {
        name: (stand.processes.cpu_s(name) - before) / max(1, result.requests) * 1e6 for name, before in cpu.items()
    }
    opened = stand.fail_opens(contender) - opened
    return Sample(load.name, contender.name, number, result, spent[contender.process], spent.get(picker, 0.0), opened)


def _streamed(stand: Stand, count: int) -> Streams:
    contender = stand.contenders[HOMING]
    opened = stand.fail_opens(contender)
    plan = Plan(contender.port, 0.0, 200, sessions=count, streams=count, events=6, interval_ms=5_000)
    result = ask(stand, plan)
    peak = stand.processes.peak_mb(f"{contender.process}-picker")
    return Streams(count, result.wrong, stand.fail_opens(contender) - opened, peak, result.p99_ms)


def ask(stand: Stand, plan: Plan) -> Result:
    """The load runs in a process of its own, on the core of the replicas and the pickers."""
    argv = (sys.executable, "-m", "bench.gateway.load", msgspec.json.encode(plan).decode())
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        os.sched_setaffinity(process.pid, {stand.cores.others})
        out, _ = process.communicate()
    if process.returncode:
        raise click.ClickException("the load failed")
    return msgspec.json.decode(out, type=Result)


if __name__ == "__main__":
    main()
