"""One measurement, from the options to the report: asks before it spends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from homing import __version__
from homing.cli.verify.engines import Scraper, Urls, named, of_control, of_the_file, of_this_machine
from homing.cli.verify.gateway import Gateway, Target, trusted
from homing.cli.verify.measure import Advance, Budget, Measured, Measurement, probes_of_a_plan
from homing.cli.verify.report import Report, Setup, decisions, in_words
from homing.core.verify.comparison import compare
from homing.core.verify.conversation import Conversation
from homing.core.verify.diagnosis import diagnose
from homing.core.verify.evidence import Evidence
from homing.core.verify.generated import generated
from homing.core.verify.observed import Answer, since
from homing.core.verify.plan import Caps, Plan, Run
from homing.core.verify.recorded import DataError, recorded
from homing.core.verify.verdict import judge
from homing.core.verify.words import salt

DONE, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured. Where no engines are named they are those of `api`, or of the file `config_path`."""

    target: Target
    model: str | None
    engines: tuple[str, ...]
    api: str | None
    config_path: str | None
    data: Path | None
    conversations: int
    turns: int
    concurrency: int
    answer_tokens: int
    seed: int
    caps: Caps


@dataclass(frozen=True, slots=True)
class Output:
    """`yes`: nobody is asked."""

    yes: bool
    out: Path | None
    as_json: bool


def run(job: Job, output: Output) -> int:
    """The exit code. Raises click.ClickException."""
    conversations = _conversations(job)
    if output.out is not None:
        _writable(output.out)
    models = asyncio.run(_models(job))
    if isinstance(models, Answer):
        return _show(_report(job, job.model or "", {}, Plan((), 0), Measured(first=[models]), Budget(job.caps)), output)
    model = job.model or _only(models)
    urls = _engines(job, model)
    plan = Plan(conversations, job.answer_tokens, probes_of_a_plan()).within(job.caps)
    if not plan.conversations:
        raise click.UsageError("the caps do not allow for one conversation: raise --max-requests or --max-tokens")
    _confirm(job, model, urls, plan, output)
    budget = Budget(job.caps)
    try:
        measured = asyncio.run(_measure(job, model, urls, plan, budget))
    except KeyboardInterrupt:
        click.echo(f"\nStopped. Spent: {budget.requests} requests, about {budget.tokens:,} tokens.", err=True)
        raise click.Abort from None
    return _show(_report(job, model, urls, plan, measured, budget), output)


def _conversations(job: Job) -> tuple[Conversation, ...]:
    if job.data is None:
        return generated(job.seed, job.conversations, job.turns)
    try:
        found = recorded(job.data.read_bytes())
    except DataError as error:
        raise click.UsageError(f"--data {job.data}: {error}") from None
    if not found.conversations:
        raise click.UsageError(f"--data {job.data}: no conversation of four turns or more, of texts alone")
    if found.left_out:
        click.echo(f"{found.left_out} conversations are left out: fewer than four turns, or not all text", err=True)
    return tuple(conversation.cut(job.turns) for conversation in found.conversations[: job.conversations])


def _writable(directory: Path) -> None:
    """Makes it: what was measured must not be lost for want of it. Raises click.UsageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--out {directory}: {error.strerror or error}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise click.UsageError(f"--out {directory}: nothing may be written there")


async def _models(job: Job) -> tuple[str, ...] | Answer:
    async with Gateway(job.target, 1) as gateway:
        models = await gateway.models()
    # a gateway need not have a list of models; where one is named, its answers will tell
    return () if isinstance(models, Answer) and models.status == 404 and job.model else models


def _only(models: tuple[str, ...]) -> str:
    if len(models) == 1:
        return models[0]
    if not models:
        raise click.UsageError("the gateway names no models: say --model")
    raise click.UsageError(f"several models are served: say --model with one of {', '.join(models)}")


def _engines(job: Job, model: str) -> Urls:
    if job.engines:
        return named(job.engines)
    if job.api is not None:
        return of_control(job.api, job.config_path, model)
    if job.config_path is not None:
        return of_the_file(job.config_path, model)
    return of_this_machine(job.target.url, model)


def _confirm(job: Job, model: str, urls: Urls, plan: Plan, output: Output) -> None:
    """Raises click.Abort, and click.UsageError where nobody can be asked."""
    estimate = plan.estimate()
    turns = sum(len(conversation.turns) for conversation in plan.conversations)
    click.echo(
        f"{job.target.url}, model {model}; engines: {', '.join(urls) or 'none known'}\n"
        f"{len(plan.conversations)} conversations of {turns} turns together, each once by round robin and once with"
        f" affinity, and {plan.probes} probes:\n"
        f"{estimate.requests} requests, about {estimate.prompt_tokens:,} tokens of prompts and up to"
        f" {estimate.answer_tokens:,} of answers (at most {job.caps.requests} requests, {job.caps.tokens:,} tokens).",
        err=True,
    )
    if output.yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("nothing is sent unasked: say --yes")
    click.confirm("Send them?", abort=True, err=True)


async def _measure(job: Job, model: str, urls: Urls, plan: Plan, budget: Budget) -> Measured:
    async with Gateway(job.target, job.concurrency) as gateway, Scraper(urls, trusted(job.target.ca)) as scraper:
        measurement = Measurement(gateway, scraper, model, budget, job.answer_tokens)
        nonce = secrets.randbits(63)
        turns = sum(len(conversation.turns) for conversation in plan.conversations)
        with _progress("probes", plan.probes) as advance:
            fit = await measurement.probe(advance)
        for each in Run if fit else ():
            with _progress(each.value, turns) as advance:
                await measurement.run(each, plan, salt(nonce, each), job.concurrency, advance)
            if not any(o.answer.good for o in measurement.measured.observations):
                break
        return measurement.measured


@contextlib.contextmanager
def _progress(label: str, length: int) -> Iterator[Advance]:
    with click.progressbar(
        length=length, label=f"{label:12}", file=sys.stderr, hidden=not sys.stderr.isatty(), show_pos=True
    ) as bar:
        yield bar.update


def _report(job: Job, model: str, urls: Urls, plan: Plan, measured: Measured, budget: Budget) -> Report:
    target = job.target
    counted = {run: since(after, before) for run, (before, after) in measured.states.items()}
    comparison = compare(measured.observations, counted)
    evidence = Evidence(
        url=target.url,
        key_given=target.key is not None,
        header=target.header,
        concurrency=job.concurrency,
        first=measured.first,
        probes=measured.probes,
        observations=measured.observations,
        states=measured.states,
        conversations=plan.conversations,
        issues=measured.issues,
        comparison=comparison,
    )
    setup = Setup(
        url=target.url,
        model=model,
        endpoint=target.endpoint,
        data=job.data.name if job.data is not None else "the built-in data",
        seed=job.seed,
        conversations=len(plan.conversations),
        turns=job.turns,
        concurrency=job.concurrency,
        answer_tokens=job.answer_tokens,
        engines=len(urls),
    )
    return Report(
        homing=__version__,
        setup=setup,
        verdict=judge(comparison),
        findings=diagnose(evidence),
        comparison=comparison,
        best_hit_rate=evidence.reusable(),
        decisions=decisions(measured.observations),
        requests=budget.requests,
        tokens=budget.tokens,
        capped=measured.capped,
    )


def _show(report: Report, output: Output) -> int:
    data = msgspec.json.format(msgspec.json.encode(report))
    click.echo(data.decode() if output.as_json else in_words(report))
    if output.out is not None:
        from homing.cli.verify.page import page

        try:
            (output.out / "verify.json").write_bytes(data + b"\n")
            (output.out / "verify.html").write_text(page(report))
        except OSError as error:
            raise click.ClickException(f"--out {output.out}: {error.strerror or error}") from None
        click.echo(f"{output.out}/verify.html and verify.json are written", err=True)
    return DONE if report.good else FAILED
