"""What a picker's death, freeze or stall costs clients, with each transport of the filter: nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.client import ask, chat_body, many, request
from e2e.stack import SimulatedPool, StaticStack, static_stack, until

POOL = SimulatedPool("only", "only-model", 3)
STALL_S = 2.6
"""Above the filter's message timeout of 2 s."""


@pytest.fixture(params=["h2", "grpc"])
def stack(short_directory: Path, request: pytest.FixtureRequest) -> Iterator[StaticStack]:
    with static_stack(short_directory / f"fault-{request.param}", (POOL,), transport=request.param) as made:
        yield made


def turn(session: int) -> bytes:
    return request(chat_body("only-model"), {"x-session-id": f"session-{session}"})


async def homes(stack: StaticStack, sessions: int = 60) -> list[str]:
    answers = await many(stack.data, [turn(n) for n in range(sessions)], 20)
    assert {answer.status for answer in answers} == {200}
    return [answer.headers["x-homing-replica"] for answer in answers]


async def until_over(over: asyncio.Event, stack: StaticStack) -> list[int]:
    """Turns, one after the other, until it is over; their statuses."""
    statuses, number = [], 0
    while not over.is_set():
        answer = await ask(stack.data, turn(number % 60))
        statuses.append(answer.status if answer.complete else 0)
        number += 1
    return statuses


async def test_a_picker_that_stalls_or_dies_under_load_fails_nothing_and_moves_nobody(stack: StaticStack) -> None:
    before = await homes(stack)
    over = asyncio.Event()
    load = [asyncio.create_task(until_over(over, stack)) for _ in range(8)]
    await asyncio.sleep(0.3)
    opened = stack.fail_opens()
    stack.processes.signal("picker", signal.SIGSTOP)  # its event loop stands still
    await asyncio.sleep(STALL_S)
    stack.processes.signal("picker", signal.SIGCONT)
    await asyncio.to_thread(until, lambda: stack.pickers_in_service() == 2, what="the picker to be asked again")
    stalled = stack.fail_opens() - opened
    stack.processes.kill("picker")
    await asyncio.sleep(1)
    over.set()
    statuses = [status for each in await asyncio.gather(*load) for status in each]
    assert set(statuses) == {200}
    assert stalled >= 1, "what waited for the picker went on without it, and was counted"
    counted = lambda: stack.metric("homing_fallbacks_total", "standby")  # noqa: E731
    await asyncio.to_thread(until, lambda: counted() >= 1, what="the standby to hear of it")
    assert await homes(stack) == before
