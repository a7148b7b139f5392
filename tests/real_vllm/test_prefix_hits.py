"""What later turns find in real prefix caches, to the token, by the engines' own counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from real_vllm.engines import MODEL, Engine, reused
from real_vllm.gateway import ENDS, Gateway, Messages

from bench.calibration.prose import Prose

pytestmark = pytest.mark.vllm

CONVERSATIONS, TURNS = 6, 4


def turns(seed: int) -> list[list[dict[str, str]]]:
    """The messages of each turn of a conversation that has nothing in common with another's; answers are scripted."""
    prose = Prose(seed)
    messages = [{"role": "system", "content": f"Conversation {seed}. {prose.words(150)}"}]
    made = []
    for _ in range(TURNS):
        messages = [*messages, {"role": "user", "content": prose.words(160)}]
        made.append(messages)
        messages = [*messages, {"role": "assistant", "content": prose.words(40)}]
    return made


@dataclass(frozen=True)
class Counted:
    """Tokens that were looked up in the caches, and found there."""

    queries: float
    hits: float

    def __sub__(self, other: Counted) -> Counted:
        return Counted(self.queries - other.queries, self.hits - other.hits)


def counted(fleet: dict[str, Engine]) -> Counted:
    """By all engines together."""
    names = ("prefix_cache_queries", "prefix_cache_hits")
    return Counted(*(sum(engine.counter(name) for engine in fleet.values()) for name in names))


def expected(fleet: dict[str, Engine], asked: Sequence[tuple[str, Messages]]) -> Counted:
    """Of requests to engines that have none of it before, one after the other."""
    served: dict[str, list[list[int]]] = {name: [] for name in fleet}
    queries = hits = 0
    for name, messages in asked:
        prompt = fleet[name].tokens(messages)
        queries += len(prompt)
        hits += reused(served[name], prompt)
        served[name].append(prompt)
    return Counted(queries, hits)


def test_every_later_turn_finds_all_of_the_turn_before_it(homing: Gateway, fleet: dict[str, Engine]) -> None:
    conversations = {seed: turns(seed) for seed in range(100, 100 + CONVERSATIONS)}
    sessions: dict[int, str] = {}
    asked: list[tuple[str, Messages]] = []
    decisions = []
    before = counted(fleet)
    for turn in range(TURNS):
        for seed, messages in conversations.items():
            answer = homing.chat(messages[turn], sessions.get(seed))
            sessions[seed] = answer.headers["x-session-id"]
            asked.append((answer.headers["x-homing-replica"], messages[turn]))
            decisions.append(answer.headers["x-homing-decision"])
    found = counted(fleet) - before
    assert decisions == ["new"] * CONVERSATIONS + ["home"] * CONVERSATIONS * (TURNS - 1)
    assert len({name for name, _ in asked}) > 1
    one_engine = expected(fleet, [("a", messages) for _, messages in asked])
    assert found == expected(fleet, asked) == one_engine  # as if one cache had served them all


def test_sent_to_the_engines_in_turns_they_find_less_than_a_fifth_of_it(fleet: dict[str, Engine]) -> None:
    """What any balancer without affinity does; the numbers beside those of the test above."""
    names = list(fleet)
    conversations = [turns(seed) for seed in range(200, 200 + CONVERSATIONS)]
    asked: list[tuple[str, Messages]] = []
    before = counted(fleet)
    for turn in range(TURNS):
        for number, messages in enumerate(conversations):
            name = names[(number + turn) % len(names)]
            body = {"model": MODEL, "messages": messages[turn], **ENDS}
            fleet[name].http.post("/v1/chat/completions", json=body).raise_for_status()
            asked.append((name, messages[turn]))
    found = counted(fleet) - before
    assert found == expected(fleet, asked)
    at_home = expected(fleet, [("a", messages) for _, messages in asked])
    assert 0 < 5 * found.hits < at_home.hits
