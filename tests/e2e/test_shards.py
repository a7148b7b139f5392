"""Two pickers among which Envoy shares the sessions out: what no header names comes to either of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.stack import SimulatedPool, StaticStack, static_stack

pytestmark = pytest.mark.e2e

POOLS = (SimulatedPool("a", "model-a", 3), SimulatedPool("b", "model-b", 2))


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
