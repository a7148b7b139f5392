"""What is kept of a run, and how it is told: a table for each workload, and one over all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.routing.load import UNFINISHED, Outcome
from bench.routing.stand import Conditions, Run, Seen
from bench.routing.work import Work

LATE_S = 0.15
"""Simulated seconds: where the generator, or the replicas' loop, was later than that once in a hundred times, the
machine was the bottleneck, and the run says nothing."""

SHARE = 0.9
PARTS = 60
"""Points of a curve over time."""


class Figures(msgspec.Struct, frozen=True):
    """Of one contender on one workload. Times in simulated seconds, from when a request was due; one that had not ended
    when the run did counts with the time until then."""

    contender: str
    p50_s: float
    p90_s: float
    p99_s: float
    mean_s: float
    makespan_s: float
    hit_rate: float  # prompt tokens found in a prefix cache
    imbalance: float  # of prompt tokens to compute, the most loaded replica against the mean
    moved: int
    retried: int
    unfinished: int
    lost: dict[str, int]  # why, and how often
    prompt_tokens: int
    fail_opens: int
    ttft_by_turn_s: list[float]  # p90 of the first turn, the second, ...
    times_s: list[float]
    in_flight: dict[str, list[int]]  # by replica, at those times
    hits: list[float]  # hit rate up to those times
    generator_late_s: float
    replicas_late_s: float
    on_the_way_s: float  # mean TTFT at the client less what the engines say
    cpu_share: dict[str, float]  # of a core, by process

    @property
    def late_s(self) -> float:
        return max(self.generator_late_s, self.replicas_late_s)

    @property
    def late(self) -> bool:
        return self.late_s > LATE_S


class Report(msgspec.Struct, frozen=True):
    """One workload at one load."""

    workload: str
    load: float
    seed: int
    turns: int
    sessions: int
    digest: str  # of all that is sent
    conditions: Conditions
    machine: str
    versions: list[str]
    figures: list[Figures]

    @property
    def stem(self) -> str:
        """Of its file's name."""
        seed = f".seed{self.seed}" if self.seed else ""
        return f"{self.workload}-{self.load:g}{seed}"

    def with_(self, figures: Figures) -> Report:
        """Instead of what is there of the same contender."""
        kept = [f for f in self.figures if f.contender != figures.contender]
        return msgspec.structs.replace(self, figures=[*kept, figures])


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest that so many are not above; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def figures(run: Run, work: Work, conditions: Conditions) -> Figures:
    waited = [o.ttft_s for o in run.outcomes]
    served = [o for o in run.outcomes if not o.why]
    lost: dict[str, int] = {}
    for outcome in run.outcomes:
        if outcome.why and outcome.why != UNFINISHED:
            lost[outcome.why] = lost.get(outcome.why, 0) + 1
    prompt_tokens = sum(o.prompt_tokens for o in served)
    seen = _thinned(run.seen)
    scale = conditions.time_scale
    return Figures(
        run.contender,
        p50_s=quantile(waited, 0.5),
        p90_s=quantile(waited, 0.9),
        p99_s=quantile(waited, 0.99),
        mean_s=sum(waited) / max(1, len(waited)),
        makespan_s=run.took_s,
        hit_rate=sum(o.cached_tokens for o in served) / max(1, prompt_tokens),
        imbalance=_imbalance(served),
        moved=run.moved,
        retried=sum(o.attempts > 1 for o in served),
        unfinished=sum(o.why == UNFINISHED for o in run.outcomes),
        lost=lost,
        prompt_tokens=prompt_tokens,
        fail_opens=run.fail_opens,
        ttft_by_turn_s=_by_turn(run.outcomes),
        times_s=[round(s.at_s, 1) for s in seen],
        in_flight={
            name: [s.sample.loads[name].running + s.sample.loads[name].waiting for s in seen]
            for name in (seen[0].sample.loads if seen else ())
        },
        hits=_hits(served, [s.at_s for s in seen]),
        generator_late_s=quantile((o.late_s for o in run.outcomes), 0.99),
        replicas_late_s=quantile((s.sample.p99_late_ms for s in run.seen), SHARE) / 1e3 * scale,
        on_the_way_s=sum(o.ttft_s for o in served) / max(1, len(served)) - run.engine_ttft_s,
        cpu_share={name: round(used / run.real_s, 3) for name, used in run.cpu_s.items()},
    )


def _thinned(values: Sequence[Seen]) -> list[Seen]:
    step = max(1, len(values) // PARTS)
    return list(values[::step])


def _imbalance(served: Sequence[Outcome]) -> float:
    computed: dict[str, int] = {}
    for outcome in served:
        computed[outcome.replica] = computed.get(outcome.replica, 0) + outcome.prompt_tokens - outcome.cached_tokens
    return max(computed.values()) * len(computed) / max(1, sum(computed.values())) if computed else 0.0


def _by_turn(outcomes: Sequence[Outcome]) -> list[float]:
    turns: dict[int, list[float]] = {}
    for outcome in outcomes:
        turns.setdefault(outcome.number, []).append(outcome.ttft_s)
    return [round(quantile(turns[number], 0.9), 3) for number in sorted(turns) if len(turns[number]) >= 5]


def _hits(served: Sequence[Outcome], times_s: Sequence[float]) -> list[float]:
    ended = sorted(served, key=lambda o: o.due_s + o.ttft_s)
    found, at, cached, tokens = [], 0, 0, 0
    for time_s in times_s:
        while at < len(ended) and ended[at].due_s + ended[at].ttft_s <= time_s:
            cached, tokens = cached + ended[at].cached_tokens, tokens + ended[at].prompt_tokens
            at += 1
        found.append(round(cached / max(1, tokens), 4))
    return found


def read(directory: Path) -> list[Report]:
    return [msgspec.json.decode(f.read_bytes(), type=Report) for f in sorted(directory.glob("*.json"))]


def table(report: Report) -> str:
    """One workload. Bold: the best, or within 5% of it (hit rate: within two points)."""
    told = [f for f in report.figures if not f.late]
    seed = f", seed {report.seed}" if report.seed else ""
    lines = [
        f"**{report.workload}, load {report.load:g}{seed}**: {report.turns:,} requests of {report.sessions:,} sessions",
        "",
        "| contender | TTFT p50 | p90 | p99 | makespan | hit rate | imbalance | moved | retried | not ended | lost |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for f in report.figures:
        if f.late:
            lines.append(f"| {f.contender} | the machine was too busy: {f.late_s:.2f} s late | | | | | | | | | |")
            continue
        times = [_bold(get, f, told) for get in _TIMES]
        hit = f"{f.hit_rate:.1%}"
        best = max(other.hit_rate for other in told)
        cells = [*times, f"**{hit}**" if f.hit_rate >= best - 0.02 else hit, f"{f.imbalance:.2f}"]
        counts = (f.moved, f.retried, f.unfinished, sum(f.lost.values()))
        lines.append(f"| {f.contender} | " + " | ".join([*cells, *map(str, counts)]) + " |")
    return "\n".join(lines)


_TIMES: tuple[Callable[[Figures], float], ...] = (
    lambda f: f.p50_s,
    lambda f: f.p90_s,
    lambda f: f.p99_s,
    lambda f: f.makespan_s,
)


def _bold(get: Callable[[Figures], float], figures: Figures, among: Sequence[Figures]) -> str:
    value = get(figures)
    return f"**{_short(value)}**" if value <= 1.05 * min(map(get, among)) else _short(value)


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


Draws = Mapping[str, Sequence[Figures]]
"""Of one workload at one load: by contender, what came of each seed."""


def overview(reports: Sequence[Report]) -> str:
    """TTFT p90 / p99 of every contender on every workload: of several seeds the median, and the least and the most."""
    works: dict[str, dict[str, list[Figures]]] = {}
    for report in reports:
        draws = works.setdefault(f"{report.workload} {report.load:g}", {})
        for f in report.figures:
            draws.setdefault(f.contender, []).extend([] if f.late else [f])
    names = list(dict.fromkeys(name for draws in works.values() for name in draws))
    lines = ["| contender | " + " | ".join(works) + " |", "|---" * (len(works) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(_drawn(draws, name) for draws in works.values()) + " |")
    return "\n".join(lines)


def _drawn(draws: Draws, name: str) -> str:
    """Bold: the best median, or within 5% of it, among those with the most draws: one draw proves little."""
    own = draws.get(name)
    if not own:
        return ""
    most = max(map(len, draws.values()))
    rivals = [f for f in draws.values() if len(f) == most]
    cells = []
    for get in _TIMES[1:3]:
        values = sorted(map(get, own))
        middle, best = median(values), min(median(map(get, f)) for f in rivals)
        text = f"**{_short(middle)}**" if len(own) == most and middle <= 1.05 * best else _short(middle)
        cells.append(text if len(values) == 1 else f"{text} ({_short(values[0])}-{_short(values[-1])})")
    return " / ".join(cells)
