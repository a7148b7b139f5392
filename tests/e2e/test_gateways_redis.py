"""Two gateways with one Redis: a session lives in one place for both, and the Redis may do what it likes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx
import pytest
from e2e.client import Answer, ask, request
from e2e.stack import SimulatedPool, StaticStack, replica_ids, static_stack, until
from redis_server import RedisServer

pytestmark = pytest.mark.e2e

POOL = SimulatedPool("both", "both-model", 3)
LOST = "both-0"
KNOWN_TO_BOTH = [f"both-know-{i}" for i in range(18)]
KNOWN_TO_ONE = [f"one-knows-{i}" for i in range(18)]
Served = dict[str, tuple[str, str]]
"""Who served each session, and why."""


@dataclass
class Gateways:
    east: StaticStack
    west: StaticStack
    redis: RedisServer

    @property
    def both(self) -> tuple[StaticStack, StaticStack]:
        return self.east, self.west


@pytest.fixture(scope="module")
def gateways(short_directory: Path) -> Iterator[Gateways]:
    redis = RedisServer(short_directory / "redis").start()
    extra = {"sessions": {"secret": "file:secret", "pins": redis.url}}
    for name in ("east", "west"):
        (short_directory / name).mkdir()
        (short_directory / name / "secret").write_text("a secret of at least 16 bytes")
    try:
        with static_stack(short_directory / "east", (POOL,), extra) as east:
            ports = tuple(east.replica_ports[r] for r in replica_ids(POOL))
            pool = SimulatedPool(POOL.id, POOL.served_name, POOL.replicas, ports=ports)
            with static_stack(short_directory / "west", (pool,), extra) as west:
                yield Gateways(east, west, redis)
    finally:
        redis.kill()


def message(session: str) -> bytes:
    body = {"model": "both-model", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    return request(json.dumps(body).encode(), {"x-session-id": session})


def served(answer: Answer) -> tuple[str, str]:
    assert answer.status == 200, answer
    return answer.headers["x-homing-replica"], answer.headers["x-homing-decision"]


def ask_all(stack: StaticStack, sessions: list[str]) -> Served:
    async def one_by_one() -> Served:
        return {session: served(await ask(stack.data, message(session))) for session in sessions}

    return asyncio.run(one_by_one())


def fit(stack: StaticStack, picker: str) -> int:
    text = httpx.get(f"http://127.0.0.1:{stack.picker_http[picker]}/replicas", trust_env=False).text
    return text.count("ready")


@pytest.fixture(scope="module")
def homes(gateways: Gateways) -> dict[str, str]:
    """Where sessions live since one replica was lost for a while: for some, not where the hash says. Only the first
    gateway was asked then, and of half of them the second has never heard."""
    for stack in gateways.both:
        ask_all(stack, KNOWN_TO_BOTH)
    gateways.east.processes.kill(LOST)
    for stack in gateways.both:
        until(lambda stack=stack: stack.healthy_hosts("both") == 2, what="the loss")
    moved = ask_all(gateways.east, KNOWN_TO_BOTH + KNOWN_TO_ONE)
    gateways.east.start_replica(POOL, LOST)
    for stack in gateways.both:
        until(lambda stack=stack: stack.healthy_hosts("both") == 3, what="its return")
        until(lambda stack=stack: all(fit(stack, picker) >= 3 for picker in stack.picker_http), what="its return")
    return {session: replica for session, (replica, _) in moved.items()}


def test_a_session_moved_at_one_gateway_is_at_home_there_at_the_other(gateways: Gateways, homes: dict[str, str]):
    for sessions in (KNOWN_TO_BOTH, KNOWN_TO_ONE):
        at_home = {session: (homes[session], "home") for session in sessions}
        assert ask_all(gateways.west, sessions) == at_home
        assert ask_all(gateways.east, sessions) == at_home


def reads(stack: StaticStack, outcome: str) -> float:
    return stack.metric("homing_pins_read_total", outcome=outcome)


async def load(gateways: Gateways, until_set: asyncio.Event, tag: str) -> Counter[int]:
    """Sessions that are new to everybody, at both gateways, one after the other; the statuses."""
    statuses: Counter[int] = Counter()

    async def one(stack: StaticStack, name: str) -> None:
        number = 0
        while not until_set.is_set():
            answer = await ask(stack.data, message(f"{tag}-{name}-{number}"))
            statuses[answer.status] += 1
            number += 1
            await asyncio.sleep(0.005)

    await asyncio.gather(one(gateways.east, "east"), one(gateways.west, "west"))
    return statuses


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_redis_that_fails_under_load_costs_no_request_and_heals(gateways: Gateways, how: str):
    redis, west = gateways.redis, gateways.west

    async def fail_and_heal() -> Counter[int]:
        enough = asyncio.Event()
        task = asyncio.create_task(load(gateways, enough, how))
        await asyncio.sleep(0.3)
        redis.kill() if how == "killed" else redis.freeze()
        await asyncio.sleep(2.0)
        await asyncio.to_thread(redis.start if how == "killed" else redis.thaw)
        await asyncio.sleep(0.3)
        enough.set()
        return await task

    late, skipped, answered = (reads(west, outcome) for outcome in ("late", "skipped", "absent"))
    statuses = asyncio.run(fail_and_heal())
    assert set(statuses) == {200}
    assert statuses[200] > 20
    assert reads(west, "skipped") - skipped > reads(west, "late") - late  # few of them paid for it
    assert west.fail_opens() == 0
    until(lambda: shared(gateways, how), what="gateways that share again")
    assert reads(west, "absent") > answered


def shared(gateways: Gateways, tag: str, numbers: Iterator[int] = count()) -> bool:  # noqa: B008 (it goes on)
    """Whether a session that only the first gateway has seen is at home at the second."""
    session = f"{tag}-again-{next(numbers)}"
    (replica, _) = ask_all(gateways.east, [session])[session]
    return ask_all(gateways.west, [session])[session] == (replica, "home")


def test_an_emptied_redis_is_written_again_and_no_pin_is_lost(gateways: Gateways, homes: dict[str, str]):
    gateways.redis.command("FLUSHALL")

    def written() -> bool:
        return int(gateways.redis.command("DBSIZE").strip(":\r\n")) > len(homes)

    until(written, what="the table in Redis again")
    for stack in gateways.both:
        assert ask_all(stack, list(homes)) == {session: (replica, "home") for session, replica in homes.items()}


def test_nothing_of_the_store_is_in_the_logs(gateways: Gateways):
    for stack in gateways.both:
        for picker in stack.picker_http:
            log = stack.processes.log(picker)
            assert "Redis does not keep the pins" in log
            assert str(gateways.redis.port) not in log
