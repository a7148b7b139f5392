"""Data-parallel ranks behind real Envoy and NGINX, who know an address once: the picker says which rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from e2e.nginx_stack import NginxStack, nginx_stack
from e2e.stack import SimulatedPool, StaticStack, static_stack, until

pytestmark = pytest.mark.e2e

POOL = SimulatedPool("dp", "m", 2, ranks=4)
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def stack(short_directory: Path) -> Iterator[StaticStack]:
    with static_stack(short_directory / "ranks", (POOL,)) as started:
        yield started


def ask(stack: StaticStack | NginxStack, headers: dict[str, str]) -> httpx.Response:
    answer = httpx.post(f"{stack.url}/v1/chat/completions", json=BODY, headers=headers, trust_env=False)
    assert answer.status_code == 200
    return answer


def at(answer: httpx.Response) -> tuple[str, str | None]:
    assert answer.headers["x-sim-replica"] == answer.headers["x-homing-replica"]
    return answer.headers["x-sim-replica"], answer.headers.get("x-sim-rank")


def test_sessions_live_at_ranks(stack: StaticStack) -> None:
    first = [ask(stack, {}) for _ in range(16)]
    assert Counter(map(at, first)) == {(f"dp-{host}", str(rank)): 2 for host in range(2) for rank in range(4)}
    for answer in first:
        again = ask(stack, {"x-session-id": answer.headers["x-session-id"]})
        assert (at(again), again.headers["x-homing-decision"]) == (at(answer), "home")


def test_a_client_does_not_choose_its_rank(stack: StaticStack) -> None:
    own = at(ask(stack, {"x-session-id": "mine"}))
    for rank in range(4):
        assert at(ask(stack, {"x-session-id": "mine", "x-data-parallel-rank": str(rank)})) == own


def test_outcomes_are_counted_by_rank(stack: StaticStack) -> None:
    host, rank = at(ask(stack, {"x-session-id": "counted"}))
    name = f"{host}-{rank}"
    until(lambda: stack.metric("homing_outcomes_total", replica=name) > 0, what="its outcome")
    assert stack.metric("homing_outcomes_total", replica=host) == 0


def test_without_pickers_the_address_is_found_and_the_rank_is_the_engines_choice(stack: StaticStack) -> None:
    before = [ask(stack, {}) for _ in range(8)]
    for name in stack.picker_http:
        stack.processes.kill(name)
    until(lambda: stack.pickers_in_service() == 0, what="the loss of the pickers")
    for answer in before:
        alone = ask(stack, {"x-session-id": answer.headers["x-session-id"], "x-data-parallel-rank": "3"})
        assert (at(alone), alone.headers["x-homing-decision"]) == ((at(answer)[0], None), "fallback")


def test_pickers_that_start_anew_find_address_and_rank(stack: StaticStack) -> None:
    for name in stack.picker_http:
        if name not in stack.processes.running:
            stack.start_picker(name)
    until(stack.pickers_ready, what="the pickers")
    until(lambda: stack.pickers_in_service() == 2, what="pickers in Envoy")
    before = [ask(stack, {}) for _ in range(8)]
    for name in stack.picker_http:
        stack.processes.kill(name)
        stack.start_picker(name)
    until(stack.pickers_ready, what="the pickers again")
    until(lambda: stack.pickers_in_service() == 2, what="pickers in Envoy again")
    for answer in before:
        again = ask(stack, {"x-session-id": answer.headers["x-session-id"]})
        assert (at(again), again.headers["x-homing-decision"]) == (at(answer), "hash")


def test_an_address_that_fails_sends_its_sessions_to_the_same_rank_of_the_other(stack: StaticStack) -> None:
    before = [ask(stack, {}) for _ in range(8)]
    stack.processes.kill("dp-0")
    for answer in before:
        host, rank = at(answer)
        after = ask(stack, {"x-session-id": answer.headers["x-session-id"]})
        assert at(after) == ("dp-1", rank)
        assert host in ("dp-0", "dp-1")


def test_nginx_passes_the_rank_on_and_none_of_a_clients(short_directory: Path) -> None:
    pool = replace(POOL, hash="ketama")
    with nginx_stack(short_directory / "nginx-ranks", (pool,), pickers=("picker",)) as nginx:
        first = [ask(nginx, {}) for _ in range(16)]
        assert Counter(map(at, first)) == {(f"dp-{host}", str(rank)): 2 for host in range(2) for rank in range(4)}
        ids = [answer.headers["x-session-id"] for answer in first]
        again = [ask(nginx, {"x-session-id": session, "x-data-parallel-rank": "3"}) for session in ids]
        assert [(at(answer), answer.headers["x-homing-decision"]) for answer in again] == [
            (at(answer), "home") for answer in first
        ]
        nginx.processes.kill("picker")
        alone = [ask(nginx, {"x-session-id": session, "x-data-parallel-rank": "3"}) for session in ids]
        assert [at(answer) for answer in alone] == [(at(answer)[0], None) for answer in first]
