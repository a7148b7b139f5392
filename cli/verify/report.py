"""The result: as a value for machines, and as a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from homing.core.verify.comparison import Comparison, Hits
from homing.core.verify.diagnosis import Finding
from homing.core.verify.observed import Observation
from homing.core.verify.plan import Run
from homing.core.verify.spread import Ratio
from homing.core.verify.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Setup:
    """What was measured. `data`: where the conversations are from."""

    url: str
    model: str
    endpoint: str
    data: str
    seed: int
    conversations: int
    turns: int
    concurrency: int
    answer_tokens: int
    engines: int


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` prints. `best_hit_rate`: the share of all that was sent that the turn before had sent.
    `decisions`: of a homing that shows them, by run. No ids, no prompts, no answers."""

    homing: str
    setup: Setup
    verdict: Verdict
    findings: Sequence[Finding]
    comparison: Comparison
    best_hit_rate: float
    decisions: Mapping[str, Mapping[str, int]]
    requests: int
    tokens: int
    capped: bool

    @property
    def good(self) -> bool:
        return self.verdict.good


def decisions(observations: Sequence[Observation]) -> dict[str, dict[str, int]]:
    counted = {
        run.value: dict(Counter(o.answer.decision for o in observations if o.run is run and o.answer.decision))
        for run in Run
    }
    return {run: reasons for run, reasons in counted.items() if reasons}


def in_words(report: Report) -> str:
    """Several lines, without a newline at the end."""
    lines = [report.verdict.headline, *(f"  {detail}" for detail in report.verdict.details)]
    if report.comparison.turns:
        lines += ["", *_turns(report.comparison), "", *_engines(report)]
    if report.capped:
        lines += ["", "A cap ended the measurement early: only turns that both runs have answered are compared."]
    for finding in report.findings:
        lines += ["", f"{finding.weight.value} ({finding.code}): {finding.seen}", f"  {finding.change}"]
    lines += ["", f"Spent: {report.requests} requests, about {report.tokens:,} tokens."]
    return "\n".join(lines)


def _turns(comparison: Comparison) -> Iterator[str]:
    yield "TTFT    round robin, ms     affinity, ms    affinity to round robin"
    yield "turn       p50      p90     p50      p90    on average (95% interval)"
    for row in comparison.turns:
        s, a = row.scattered, row.affinity
        yield (
            f"{row.turn:4}  {s.median_s * 1000:8.1f} {s.p90_s * 1000:8.1f} {a.median_s * 1000:7.1f}"
            f" {a.p90_s * 1000:8.1f}    {interval(row.ratio)}"
        )


def interval(ratio: Ratio) -> str:
    spread = f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.certain else ""
    return f"{ratio.value:.2f}{spread}"


def _engines(report: Report) -> Iterator[str]:
    comparison = report.comparison
    if not comparison.source:
        return
    scattered, affinity = (comparison.hits.get(run) for run in Run)
    rows = [(row.engine, row.scattered, row.affinity) for row in comparison.engines]
    rows.append(("all", scattered, affinity))
    width = max(7, *(len(name) for name, _, _ in rows))
    yield f"{'replica'.ljust(width)}   round robin          affinity"
    yield f"{''.ljust(width)}   hit rate  requests   hit rate  requests"
    for name, one, other in rows:
        yield f"{name.ljust(width)}   {_hits(one)}   {_hits(other)}"
    yield f"At best {report.best_hit_rate:.0%}: so much of what is sent was sent with the turn before."


def _hits(hits: Hits | None) -> str:
    return f"{rate(hits):>8}  {hits.requests:8.0f}" if hits is not None else f"{'-':>8}  {'-':>8}"


def rate(hits: Hits | None) -> str:
    value = hits.rate if hits is not None else None
    return f"{value:.0%}" if value is not None else "-"
