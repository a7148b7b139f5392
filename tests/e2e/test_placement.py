"""Placement by cost with real Envoy and simulated replicas: a home that is swamped, overload of all, receipts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.client import Answer, ask, many, request
from e2e.stack import SimulatedPool, StaticStack, static_stack, until

pytestmark = pytest.mark.e2e

SLOW = ("--ttft-ms", "1500", "--itl-ms", "1")
POOL = SimulatedPool("p", "m", 3, sim_flags=SLOW, settings={"placement": {"prefill_tokens_per_s": 1000}})
FULL = SimulatedPool(
    "f", "full", 2, sim_flags=SLOW, settings={"placement": {"prefill_tokens_per_s": 1000, "reject_above_tokens": 5000}}
)


@pytest.fixture(scope="module")
def stack(short_directory: Path) -> Iterator[StaticStack]:
    with static_stack(short_directory / "placement", (POOL, FULL)) as started:
        yield started


def turn(model: str, words: int, session: str | None = None, word: str = "word") -> bytes:
    messages = [{"role": "user", "content": f"{word} " * words}]
    body = json.dumps({"model": model, "messages": messages, "max_tokens": 2}).encode()
    return request(body, {"x-session-id": session} if session else None)


def explained(stack: StaticStack, session: str) -> dict[str, object]:
    url = f"http://127.0.0.1:{stack.picker_http['picker']}/explain"
    (receipt,) = httpx.get(url, params={"session": session, "model": "m"}, trust_env=False).json()
    assert isinstance(receipt, dict)
    return receipt


def begun(stack: StaticStack, requests: int) -> None:
    until(lambda: stack.in_flight() >= requests, what=f"{requests} requests in flight")


async def test_a_home_that_is_swamped_is_left_and_the_receipt_said_so_before(stack: StaticStack) -> None:
    first = await ask(stack.data, turn("m", 100, "mine"))
    home = first.headers["x-homing-replica"]
    assert (explained(stack, "mine")["home"], explained(stack, "mine")["reason"]) == (home, "home")
    # about 25,000 tokens each, and nothing in common: else one would go where the other is
    swamp = [turn("m", 20_000, f"other-{i}", word) for i, word in enumerate(("this", "that", "them"))]
    others = asyncio.create_task(many(stack.data, swamp, 3))
    await asyncio.to_thread(begun, stack, 3)
    offers = {o["replica"]: o for o in explained(stack, "mine")["offers"]}  # type: ignore[attr-defined]
    assert len(offers) == 3
    assert offers[home]["terms"]["waiting"] > 10_000, "all three are swamped alike: staying is no dearer"
    assert explained(stack, "mine")["reason"] == "home"
    assert {a.status for a in await others} == {200}
    assert len({a.headers["x-homing-replica"] for a in await others}) == 3


async def test_one_large_prompt_makes_small_sessions_elsewhere(stack: StaticStack) -> None:
    first = await ask(stack.data, turn("m", 100, "small"))
    home = first.headers["x-homing-replica"]
    large = asyncio.create_task(ask(stack.data, turn("m", 20_000, "small")))  # it swamps its own home
    await asyncio.to_thread(begun, stack, 1)
    receipt = explained(stack, "small")
    assert receipt["home"] == home
    new = await many(stack.data, [turn("m", 100, None)] * 2, 2)  # while the large one is not answered
    assert home not in {a.headers["x-homing-replica"] for a in new}
    assert (await large).headers["x-homing-replica"] == home


async def test_overload_of_all_is_refused_where_the_file_asks_for_it(stack: StaticStack) -> None:
    large = [turn("full", 20_000, word=word) for word in ("this", "that")]
    loads = asyncio.create_task(many(stack.data, large, 2))
    await asyncio.to_thread(begun, stack, 2)
    refused: Answer = await ask(stack.data, turn("full", 10))
    served = await loads
    assert {a.status for a in served} == {200}
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    error = json.loads(refused.body)["error"]
    assert (error["type"], error["message"]) == (
        "RateLimitError",
        "Every replica of this model has too much work waiting.",
    )
    assert stack.metric("homing_rejected_total", reason="overload") == 1
    assert (await ask(stack.data, turn("m", 10))).status == 200


async def test_looking_at_a_session_does_not_make_one(stack: StaticStack) -> None:
    before = stack.metric("homing_sessions")
    receipt = explained(stack, "never-seen")
    assert (receipt["home"], receipt["weighed"]) == (None, True)
    assert stack.metric("homing_sessions") == before
