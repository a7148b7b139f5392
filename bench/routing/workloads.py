"""The workloads, each from its seed, in simulated time. `load` 1 is near saturation of four replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.placement import workloads as placement
from bench.placement.engine import Request
from bench.routing.work import Change, Speaker, Turn, Work, apart, conversations

REPLICAS = 4


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
    return _work("chat", conversations(_requests("chat", shape), speaker))


def trace(shape: Shape, speaker: Speaker) -> Work:
    """A production trace: 512-token blocks that prompts share, arrivals as they were, at another pace."""
    if shape.trace is None:
        raise NoTraceError("give the trace's file by --trace")
    return _work("trace", apart(_requests("trace", shape), speaker))


def shared(shape: Shape, speaker: Speaker) -> Work:
    """150 tenants of 5 users each: a system prompt of 6,144 tokens for each tenant, one question at a time."""
    return _work("shared", _apart(_requests("shared", shape), speaker))


def agents(shape: Shape, speaker: Speaker) -> Work:
    """Few, long and hot: contexts to 100,000 tokens, every fourth agent four times as fast; and every now and then an
    agent starts four subagents at once, of some quick turns each."""
    return _work("agents", conversations(_requests("agents", shape), speaker))


def fleet(shape: Shape, speaker: Speaker) -> Work:
    """`chat`, while two replicas join, one dies and one drains."""
    until = shape.until_s
    changes = (
        Change(0.25 * until, REPLICAS + 1, "joins"),
        Change(0.25 * until, REPLICAS + 2, "joins"),
        Change(0.45 * until, 1, "dies"),
        Change(0.65 * until, 2, "drains"),
    )
    turns = conversations(_requests("chat", shape), speaker)
    return _work("fleet", turns, REPLICAS + 3, frozenset({REPLICAS + 1, REPLICAS + 2}), changes)


def slow(shape: Shape, speaker: Speaker) -> Work:
    """`chat`, and one replica takes twice as long for everything."""
    turns = conversations(_requests("slow", shape), speaker)
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


def _requests(name: str, shape: Shape) -> list[Request]:
    return placement.before_four(shape.trace, shape.seed, shape.load, shape.until_s)[name]()


def _apart(kept: Sequence[Request], speaker: Speaker) -> list[Turn]:
    """Users ask one question at a time: each prompt is the tenant's system prompt and the question."""
    turns: list[Turn] = []
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
