"""What was compared and whether it agrees. Pure: everything that was seen is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median

import msgspec

from bench.calibration import shapes
from bench.calibration.cases import Case
from bench.calibration.conversations import TIMED, Request
from bench.calibration.events import Block
from bench.calibration.exposition import Comparison
from bench.calibration.probe import Reply
from bench.calibration.replay import Outcome
from bench.calibration.shapes import Difference, Fields

_OF_THE_ANSWER = ("completion_tokens", "output_tokens", "output_tokens_details", "total_tokens")


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that stays, and why. `where` is a pattern for `case: path`."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`compared` has no number that differs from run to run. `problems` are unexpected; `known` have their reasons."""

    name: str
    compared: str
    problems: tuple[str, ...] = ()
    known: tuple[Known, ...] = ()

    @property
    def agrees(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class TurnTiming:
    """Medians over the conversations. Times in milliseconds."""

    turn: int
    uncached_tokens: float
    vllm_ms: float
    sim_ms: float


def reuse(requests: Sequence[Request], vllm: Sequence[Outcome], sim: Sequence[Outcome]) -> Verdict:
    """Tokens of the prompt, reused ones, written ones and answered ones, request by request."""
    problems = []
    for request, there, here in zip(requests, vllm, sim, strict=True):
        if there.tokens != here.tokens:
            problems.append(f"{request.name}: {there.tokens} in vLLM, {here.tokens} in the sim")
    prompt, cached = sum(o.prompt_tokens for o in vllm), sum(o.cached_tokens for o in vllm)
    conversations = len({request.conversation for request in requests})
    compared = (
        f"{len(requests)} requests of {conversations} conversations; {cached:,} of {prompt:,} prompt tokens were reused"
    )
    return Verdict("Reused tokens, request by request", compared, tuple(problems))


def event_streams(name: str, vllm: Sequence[Block], sim: Sequence[Block]) -> Verdict:
    problems = []
    if list(vllm) != list(sim):
        at = next((i for i, (a, b) in enumerate(zip(vllm, sim, strict=False)) if a != b), min(len(vllm), len(sim)))
        problems.append(
            f"{len(vllm)} block events in vLLM, {len(sim)} in the sim; the first that differs is number {at}: "
            f"{_at(vllm, at)} and {_at(sim, at)}"
        )
    stored = sum(block.stored for block in vllm)
    compared = f"{stored:,} blocks stored and {len(vllm) - stored:,} removed, by tokens, chain and salt, in order"
    return Verdict(name, compared, tuple(problems))


def timings(requests: Sequence[Request], vllm: Sequence[Outcome], sim: Sequence[Outcome]) -> tuple[TurnTiming, ...]:
    """Of the streamed conversations, but for turns that came late, whose prefix may have been evicted."""
    found: dict[int, list[tuple[int, float, float]]] = {}
    for request, there, here in zip(requests, vllm, sim, strict=True):
        if request.kind == TIMED and not request.late and there.ttft_s is not None and here.ttft_s is not None:
            uncached = there.prompt_tokens - there.cached_tokens
            found.setdefault(request.turn, []).append((uncached, there.ttft_s * 1000, here.ttft_s * 1000))
    return tuple(
        TurnTiming(turn, *(median(values) for values in zip(*rows, strict=True)))
        for turn, rows in sorted(found.items())
    )


def ttft_order(turns: Sequence[TurnTiming]) -> Verdict:
    there = [t.turn for t in sorted(turns, key=lambda t: t.vllm_ms)]
    here = [t.turn for t in sorted(turns, key=lambda t: t.sim_ms)]
    problems = () if there == here else (f"turns by time: {there} in vLLM, {here} in the sim",)
    return Verdict("Time to first token, ordered by turn", f"from the quickest: turns {_list(there)}", problems)


def answers(vllm: Mapping[str, Reply], sim: Mapping[str, Reply], known: Sequence[Known]) -> Verdict:
    """Status, fields with their types, and the sequence of events."""
    found = [(name, difference) for name in vllm for difference in _shape_differences(vllm[name], sim[name])]
    streams = sum(reply.streamed for reply in vllm.values())
    compared = f"{len(vllm) - streams} answers and {streams} streams: fields, their types, the sequence of events"
    return _verdict("Shapes of answers and streams", compared, found, known)


def counts(
    cases: Sequence[Case], vllm: Mapping[str, Reply], sim: Mapping[str, Reply], known: Sequence[Known]
) -> Verdict:
    """What answers say of their prompts, and token ids, to the number."""
    found, compared = [], 0
    for case in cases:
        there, here = (_told(reply.body, whole=case.exact) for reply in (vllm[case.name], sim[case.name]))
        if not vllm[case.name].streamed and there:
            compared += 1
            if there != here:
                found.append((case.name, Difference("numbers", str(there), str(here))))
    return _verdict("Token ids and usage of the same requests", f"{compared} answers", found, known)


def refusals(vllm: Mapping[str, Reply], sim: Mapping[str, Reply], known: Sequence[Known]) -> Verdict:
    """Status and body, word for word."""
    found = []
    for name, there in vllm.items():
        here = sim[name]
        if there.status != here.status:
            found.append((name, Difference("status", str(there.status), str(here.status))))
        elif msgspec.json.decode(there.body) != msgspec.json.decode(here.body):
            found.append((name, Difference("words", _text(there.body), _text(here.body))))
    same = len(vllm) - len(found)
    return _verdict("Bad input", f"{len(vllm)} requests; {same} have the same status and the same body", found, known)


def event_fields(vllm: Fields, sim: Fields) -> Verdict:
    found = [("event", difference) for difference in shapes.compare_fields(vllm, sim)]
    compared = f"{len(vllm)} fields and their types"
    return _verdict("KV events, as they are packed", compared, found, ())


def counters(vllm: Mapping[str, float], sim: Mapping[str, float]) -> Verdict:
    """After the conversations."""
    problems = [
        f"{name}: {vllm.get(name, 0):g} in vLLM, {sim.get(name, 0):g} in the sim"
        for name in sorted(vllm.keys() | sim.keys())
        if vllm.get(name) != sim.get(name)
    ]
    return Verdict("Counters after the conversations", f"{len(vllm)} counters, to the number", tuple(problems))


def metrics(comparison: Comparison, known: Sequence[Known]) -> Verdict:
    found = [(name, Difference("family", "", "there")) for name in comparison.unknown]
    found += [(text, Difference("labels", "", "")) for text in comparison.other]
    compared = f"{len(comparison.same)} families of the sim have vLLM's name, kind and labels"
    return _verdict("Metrics", compared, found, known)


def _verdict(name: str, compared: str, found: Sequence[tuple[str, Difference]], known: Sequence[Known]) -> Verdict:
    problems: list[str] = []
    used: dict[Known, None] = {}
    for case, difference in found:
        key = f"{case}: {difference.path}"
        reason = next((k for k in known if fnmatchcase(key, k.where)), None)
        if reason is None:
            problems.append(f"{key}: {difference.vllm or 'nothing'} in vLLM, {difference.sim or 'nothing'} in the sim")
        else:
            used[reason] = None
    return Verdict(name, compared, tuple(problems), tuple(used))


def _shape_differences(vllm: Reply, sim: Reply) -> list[Difference]:
    if (vllm.status, vllm.streamed) != (sim.status, sim.streamed):
        return [Difference("status", _status(vllm), _status(sim))]
    if vllm.streamed:
        return shapes.compare_events(shapes.events(vllm.body), shapes.events(sim.body))
    return shapes.compare_fields(shapes.fields(vllm.body), shapes.fields(sim.body))


def _told(body: bytes, *, whole: bool) -> dict[str, object]:
    """The parts of an answer that do not depend on what the model says."""
    if body.startswith((b"data:", b"event:")):
        return {}
    answer = msgspec.json.decode(body, type=dict[str, object])
    usage = answer.get("usage")
    if whole or not isinstance(usage, dict):
        return answer if whole else {}
    return {name: usage[name] for name in usage if name not in _OF_THE_ANSWER}


def _status(reply: Reply) -> str:
    return f"{reply.status}{', streamed' if reply.streamed else f' {_text(reply.body)}'}"


def _text(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return text if len(text) <= 400 else f"{text[:400]}..."


def _at(blocks: Sequence[Block], at: int) -> str:
    return "none" if at >= len(blocks) else f"{blocks[at]}"


def _list(turns: Sequence[int]) -> str:
    return ", ".join(map(str, turns))
