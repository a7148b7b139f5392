"""Measurements made up for the tests of what is concluded from them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from homing.core.verify.comparison import compare
from homing.core.verify.evidence import Evidence
from homing.core.verify.generated import generated
from homing.core.verify.observed import Answer, Counters, Engines, Failure, Observation, Probes, since
from homing.core.verify.plan import Run

CONVERSATIONS = 8
TURNS = 4
REQUESTS = CONVERSATIONS * TURNS

Time = Callable[[Run, int, int], float]
"""TTFT in seconds by run, conversation and turn."""


def as_it_should_be(run: Run, conversation: int, turn: int) -> float:
    """Later turns grow when scattered, and are short with affinity; a little different in each conversation."""
    noise = 0.001 * (conversation % 3)
    return noise + (0.1 if turn == 1 else 0.02 if run is Run.AFFINITY else 0.1 * turn)


def always_as_long(run: Run, conversation: int, turn: int) -> float:
    return 0.1 + 0.001 * ((conversation + turn) % 3)


def observations(
    time: Time = as_it_should_be, conversations: int = CONVERSATIONS, **answer: object
) -> list[Observation]:
    return [
        Observation(
            run,
            number,
            turn,
            f"{number}" if run is Run.AFFINITY else f"{number}-{turn}",
            replace(
                Answer(200, ttft_s=time(run, number, turn), itl_s=0.01, prompt_tokens=500 * turn, answer_tokens=32),
                **{"session": f"{number}" if run is Run.AFFINITY else f"{number}-{turn}", **answer},
            ),
        )
        for run in Run
        for number in range(conversations)
        for turn in range(1, TURNS + 1)
    ]


def engine(requests: float = 0, queried: float = 0, found: float = 0, **more: object) -> Counters:
    defaults = {"cache_tokens": 1e6, "block_size": 16, "caching": True}
    return Counters(queried, found, requests, **{**defaults, **more})


def states(
    scattered: float, affinity: float, requests: int = REQUESTS, **more: object
) -> dict[Run, tuple[Engines, Engines]]:
    """Two engines that share the requests, and find these shares of the tokens."""
    found: dict[Run, tuple[Engines, Engines]] = {}
    for run, rate in ((Run.SCATTERED, scattered), (Run.AFFINITY, affinity)):
        after = engine(requests / 2, 10_000, 10_000 * rate, **more)
        found[run] = ({"a": engine(**more), "b": engine(**more)}, {"a": after, "b": after})
    return found


HOME = Probes(same=("a",) * 8, fresh=("a", "b") * 4)


def evidence(
    told: Sequence[Observation] | None = None, counted: dict[Run, tuple[Engines, Engines]] | None = None, **more: object
) -> Evidence:
    """As a cluster looks where all is well, but for what is given."""
    told = observations() if told is None else told
    counted = states(0.3, 0.6) if counted is None else counted
    defaults: dict[str, object] = {
        "probes": HOME,
        "issues": True,
        "concurrency": 2,
        "conversations": generated(1, CONVERSATIONS, TURNS),
        "first": (Answer(200, ttft_s=0.1, session="x"),),
    }
    comparison = compare(told, {run: since(after, before) for run, (before, after) in counted.items()})
    return Evidence("http://gateway", observations=told, states=counted, comparison=comparison, **{**defaults, **more})


def failed(failure: Failure, status: int = 0, detail: str = "", **more: object) -> Evidence:
    """The first answer is this failure, and nothing else was sent."""
    first = (Answer(status, failure, detail),)
    return evidence(told=(), counted={}, first=first, probes=Probes(), **more)
