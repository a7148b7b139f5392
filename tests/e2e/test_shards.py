"""Two pickers among which Envoy shares the sessions out: what no header names comes to either of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from e2e.stack import SimulatedPool, StaticStack, static_stack

pytestmark = pytest.mark.e2e

SLOW = ("--ttft-ms", "200", "--itl-ms", "1")  # an answer takes longer than pickers need to tell each other
POOLS = (SimulatedPool("a", "model-a", 3), SimulatedPool("b", "model-b", 4, sim_flags=SLOW))


@pytest.fixture(scope="module")
def stack(short_directory: Path) -> Iterator[StaticStack]:
    directory = short_directory / "shards"
    directory.mkdir()
    (directory / "secret").write_text("a secret of at least 16 bytes")
    extra = {"sessions": {"secret": "file:secret"}}
    with static_stack(directory, POOLS, extra, siblings=True, shards=True) as started:
        yield started


@pytest.fixture
def client(stack: StaticStack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, trust_env=False, timeout=10) as client:
        yield client


def test_a_response_is_known_to_both_at_once(stack: StaticStack, client: httpx.Client) -> None:
    """The next turn comes sooner than pickers tell each other what is new."""
    body: dict[str, object] = {"model": "model-a", "input": "hello", "max_output_tokens": 2}
    for _ in range(30):
        first = client.post("/v1/responses", json=body)
        turn = client.post("/v1/responses", json={**body, "previous_response_id": first.json()["id"]})
        asked = client.get(f"/v1/responses/{turn.json()['id']}")
        for answer in (turn, asked):
            assert answer.status_code == 200
            assert answer.headers["x-homing-decision"] == "response"
            assert answer.headers["x-homing-replica"] == first.headers["x-homing-replica"]
    assert all(stack.metric("homing_decisions_total", picker, reason="response") for picker in stack.picker_http)


def test_conversations_without_an_id_stay_home(stack: StaticStack, client: httpx.Client) -> None:
    def talk(number: int) -> set[str]:
        said = [{"role": "user", "content": f"conversation number {number} begins, and is like no other"}]
        served = set()
        for turn in range(20):
            answer = client.post("/v1/chat/completions", json={"model": "model-b", "messages": said, "max_tokens": 2})
            assert answer.headers["x-homing-decision"] == ("history" if turn else "new")
            served.add(answer.headers["x-homing-replica"])
            said += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"turn {turn} of {number}"}]
        return served

    with ThreadPoolExecutor(8) as pool:
        served = list(pool.map(talk, range(8)))
    assert {len(replicas) for replicas in served} == {1}
    assert all(stack.metric("homing_decisions_total", picker, reason="history") for picker in stack.picker_http)
