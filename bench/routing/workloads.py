"""The workloads, each from its seed, in simulated time. `load` 1 is near saturation of four replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.placement import workloads as placement
from bench.placement.engine import Request
from bench.routing.work import Change, Speaker, Turn, Work, apart, conversations

REPLICAS = 4
TRACE_PACE = 0.55
"""Of the trace, at load 1: it was taken from a larger cluster."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How much, and for how long. Sessions that would go on after `until_s` are cut there."""

    load: float = 0.7
    until_s: float = 240.0
    seed: int = 0
    trace: Path | None = None


class NoTraceError(Exception):
    """The trace's workloads need its file."""


def chat(shape: Shape, speaker: Speaker) -> Work:
    """Conversations of 4 to 20 turns with think times; 20 system prompts of 1,024 to 5,632 tokens."""
    return _work("chat", _conversations(_chat(shape), shape, speaker))


def trace(shape: Shape, speaker: Speaker) -> Work:
    """A production trace: 512-token blocks that prompts share, arrivals as they were, at another pace."""
    if shape.trace is None:
        raise NoTraceError("give the trace's file by --trace")
    requests = placement.trace(shape.trace, TRACE_PACE * shape.load)
    requests = [r for r in requests if r.arrives < shape.until_s]
    return _work("trace", apart(requests, speaker))


def shared(shape: Shape, speaker: Speaker) -> Work:
    """150 tenants of 5 users each: a system prompt of 6,144 tokens for each tenant, one question at a time."""
    requests = placement.shared(rate=3.2 * shape.load, until=shape.until_s, seed=2 + shape.seed)
    return _work("shared", _apart(requests, shape, speaker))


def agents(shape: Shape, speaker: Speaker) -> Work:
    """Few, long and hot: contexts to 100,000 tokens, every fourth agent four times as fast; and every now and then an
    agent starts four subagents at once, of some quick turns each."""
    number = max(2, round(28 * shape.load))
    loops = placement.agents(number, until=shape.until_s, seed=3 + shape.seed)
    return _work("agents", _conversations([*loops, *placement.subagents(loops, 31 + shape.seed)], shape, speaker))


def fleet(shape: Shape, speaker: Speaker) -> Work:
    """`chat`, while two replicas join, one dies and one drains."""
    until = shape.until_s
    changes = (
        Change(0.25 * until, REPLICAS + 1, "joins"),
        Change(0.25 * until, REPLICAS + 2, "joins"),
        Change(0.45 * until, 1, "dies"),
        Change(0.65 * until, 2, "drains"),
    )
    turns = _conversations(_chat(shape), shape, speaker)
    return _work("fleet", turns, REPLICAS + 3, frozenset({REPLICAS + 1, REPLICAS + 2}), changes)


def slow(shape: Shape, speaker: Speaker) -> Work:
    """`chat`, and one replica takes twice as long for everything."""
    turns = _conversations(_chat(shape, 0.85), shape, speaker)
    return _work("slow", turns, slow={REPLICAS - 1: 2.0})


Maker = Callable[[Shape, Speaker], Work]

WORKLOADS: dict[str, Maker] = {
    "chat": chat,
    "trace": trace,
    "shared": shared,
    "agents": agents,
    "fleet": fleet,
    "slow": slow,
}


def _chat(shape: Shape, share: float = 1.0) -> list[Request]:
    return placement.chat(rate=2.75 * shape.load * share, until=shape.until_s, seed=5 + shape.seed)


def _conversations(requests: Sequence[Request], shape: Shape, speaker: Speaker) -> list[Turn]:
    return conversations(_until(requests, shape), speaker)


def _apart(requests: Sequence[Request], shape: Shape, speaker: Speaker) -> list[Turn]:
    """Users ask one question at a time: each prompt is the tenant's system prompt and the question."""
    turns: list[Turn] = []
    kept = _until(requests, shape)
    alone = [Request(r.arrives, f"{i}", 0, r.tokens, r.answer, r.blocks, r.size_bytes) for i, r in enumerate(kept)]
    users = {name: i for i, name in enumerate(dict.fromkeys(r.session for r in kept))}
    counts: dict[str, int] = {}
    for request, turn in zip(kept, conversations(alone, speaker), strict=True):
        number = counts[request.session] = counts.get(request.session, -1) + 1
        turns.append(
            Turn(
                turn.due_s,
                users[request.session],
                number,
                turn.messages,
                turn.answer_tokens,
                turn.answer,
                turn.prompt_tokens,
            )
        )
    return turns


def _until(requests: Sequence[Request], shape: Shape) -> list[Request]:
    return sorted((r for r in requests if r.arrives < shape.until_s), key=lambda r: r.arrives)


def _work(
    name: str,
    turns: list[Turn],
    replicas: int = REPLICAS,
    joining: frozenset[int] = frozenset(),
    changes: tuple[Change, ...] = (),
    slow: dict[int, float] | None = None,
) -> Work:
    sessions = 1 + max((turn.session for turn in turns), default=-1)
    return Work(name, turns, sessions, replicas, joining, changes, slow or {})
