"""The two runs beside one another, turn by turn and engine by engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from homing.core.verify.observed import Answer, Engines, Observation
from homing.core.verify.plan import Run
from homing.core.verify.spread import Ratio, quantile, ratio

Measure = Callable[[Answer], float | None]


@dataclass(frozen=True, slots=True)
class Times:
    """Of one run, in seconds."""

    median_s: float
    p90_s: float
    count: int


@dataclass(frozen=True, slots=True)
class TurnRow:
    """TTFT of one turn."""

    turn: int
    scattered: Times
    affinity: Times
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class Hits:
    """Tokens of prompts looked for in a prefix cache, and found there; `requests`: how many were served."""

    queried: float
    found: float
    requests: float

    @property
    def rate(self) -> float | None:
        return self.found / self.queried if self.queried else None


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine in the two runs; None where it told nothing."""

    engine: str
    scattered: Hits | None
    affinity: Hits | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Only turns that both runs have answered. `source`: where hit rates come from, empty where nothing tells them."""

    turns: tuple[TurnRow, ...]
    first: Ratio | None
    later: Ratio | None
    itl: Ratio | None
    engines: tuple[EngineRow, ...]
    hits: Mapping[Run, Hits]
    source: str
    answered: int
    failed: Mapping[Run, int]


NOTHING = Comparison((), None, None, None, (), {}, "", 0, {})
"""Before anything was measured."""

ENGINES = "the engines' counters"
ANSWERS = "the answers' usage"


def compare(observations: Sequence[Observation], counted: Mapping[Run, Engines]) -> Comparison:
    """`counted`: what each engine counted during a run."""
    pairs = _paired(observations)
    engines = _engine_rows(counted)
    hits = {run: _sum(_hits_of(counted[run])) for run in Run if run in counted and _hits_of(counted[run])}
    source = ENGINES if len(hits) == len(Run) else ""
    if not source:
        hits, engines, source = *_told(observations), ANSWERS
        source = source if len(hits) == len(Run) else ""
    return Comparison(
        turns=tuple(_turn_rows(pairs)),
        first=_ratio(pairs, _ttft, lambda turn: turn == 1),
        later=_ratio(pairs, _ttft, lambda turn: turn > 1),
        itl=_ratio(pairs, _itl, lambda turn: True),
        engines=engines,
        hits=hits,
        source=source,
        answered=len(pairs),
        failed={run: sum(o.run is run and not o.answer.good for o in observations) for run in Run},
    )


Pairs = Mapping[tuple[int, int], tuple[Answer, Answer]]
"""(conversation, turn) -> the answers of the scattered run and of the one with affinity, both good."""


def _paired(observations: Sequence[Observation]) -> Pairs:
    by_run = {run: {o.place: o.answer for o in observations if o.run is run and o.answer.good} for run in Run}
    scattered, affinity = by_run[Run.SCATTERED], by_run[Run.AFFINITY]
    return {place: (scattered[place], affinity[place]) for place in sorted(scattered.keys() & affinity.keys())}


def _ttft(answer: Answer) -> float | None:
    return answer.ttft_s


def _itl(answer: Answer) -> float | None:
    return answer.itl_s


def _ratio(pairs: Pairs, measure: Measure, wanted: Callable[[int], bool]) -> Ratio | None:
    of_each: dict[int, tuple[list[float], list[float]]] = {}
    for (conversation, turn), answers in pairs.items():
        if not wanted(turn):
            continue
        kept = of_each.setdefault(conversation, ([], []))
        for values, answer in zip(kept, answers, strict=True):
            if (value := measure(answer)) is not None:
                values.append(value)
    return ratio(list(of_each.values()))


def _turn_rows(pairs: Pairs) -> Iterable[TurnRow]:
    for turn in sorted({turn for _, turn in pairs}):
        both = [answers for (_, t), answers in pairs.items() if t == turn]
        told = _ratio(pairs, _ttft, lambda t, turn=turn: t == turn)  # type: ignore[misc]
        if told is not None:
            yield TurnRow(turn, _times([a for a, _ in both]), _times([b for _, b in both]), told)


def _times(answers: Sequence[Answer]) -> Times:
    values = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    return Times(quantile(values, 0.5), quantile(values, 0.9), len(values))


def _hits_of(engines: Engines) -> dict[str, Hits]:
    return {
        name: Hits(c.queried, c.found, c.served)
        for name, c in engines.items()
        if c is not None and c.queried is not None and c.found is not None
    }


def _engine_rows(counted: Mapping[Run, Engines]) -> tuple[EngineRow, ...]:
    hits = {run: _hits_of(engines) for run, engines in counted.items()}
    names = dict.fromkeys(name for engines in counted.values() for name in engines)
    scattered, affinity = (hits.get(run, {}) for run in Run)
    return tuple(EngineRow(name, scattered.get(name), affinity.get(name)) for name in names)


def _told(observations: Sequence[Observation]) -> tuple[dict[Run, Hits], tuple[EngineRow, ...]]:
    """By the answers' own word: vLLM says what was cached if started with --enable-prompt-tokens-details."""
    by_run: dict[Run, dict[str, Hits]] = {}
    for observation in observations:
        answer = observation.answer
        if answer.good and answer.prompt_tokens is not None and answer.cached_tokens is not None:
            of_run = by_run.setdefault(observation.run, {})
            name = answer.replica or ""
            before = of_run.get(name, Hits(0, 0, 0))
            of_run[name] = _sum({"": before, "+": Hits(answer.prompt_tokens, answer.cached_tokens, 1)})
    names = sorted({name for of_run in by_run.values() for name in of_run if name})
    scattered, affinity = (by_run.get(run, {}) for run in Run)
    rows = tuple(EngineRow(name, scattered.get(name), affinity.get(name)) for name in names)
    return {run: _sum(of_run) for run, of_run in by_run.items()}, rows


def _sum(hits: Mapping[str, Hits]) -> Hits:
    each = hits.values()
    return Hits(sum(h.queried for h in each), sum(h.found for h in each), sum(h.requests for h in each))
