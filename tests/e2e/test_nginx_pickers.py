"""NGINX that asks a picker: sessions at home, and no request lost when the pickers are."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.client import Answer, ask, chat_body, eventually, many, request
from e2e.nginx_stack import NginxStack, nginx_stack
from e2e.stack import SimulatedPool, replica_ids, until

pytestmark = pytest.mark.e2e

MODEL = "a-model"
POOL = SimulatedPool("pool", MODEL, 3, hash="ketama")


@pytest.fixture
def nginx(short_directory: Path) -> Iterator[NginxStack]:
    with nginx_stack(short_directory / "nginx-pickers", (POOL,), pickers=("picker", "standby")) as stack:
        yield stack


async def turns(stack: NginxStack, sessions: list[str | None], at_once: int = 20) -> list[Answer]:
    messages = [request(chat_body(MODEL), {"x-session-id": s} if s else None) for s in sessions]
    answers = await many(stack.port, messages, at_once)
    assert [a.status for a in answers] == [200] * len(sessions)
    return answers


def column(answers: list[Answer], header: str) -> list[str]:
    return [a.headers[header] for a in answers]


async def test_new_sessions_are_spread_and_come_home_with_pickers_and_without(nginx: NginxStack) -> None:
    first = await turns(nginx, [None] * 60, at_once=60)
    assert Counter(column(first, "x-homing-decision")) == {"new": 60}
    homes = column(first, "x-homing-replica")
    assert set(homes) == set(replica_ids(POOL))
    ids: list[str | None] = [*column(first, "x-session-id")]
    second = await turns(nginx, ids)
    assert (Counter(column(second, "x-homing-decision")), column(second, "x-homing-replica")) == ({"home": 60}, homes)
    until(lambda: nginx.metric("homing_in_flight") == 0, 5, "the log to end all requests")
    assert nginx.metric("homing_outcomes_total") == 120
    for name in nginx.pickers:
        nginx.processes.kill(name)
    third = await turns(nginx, ids)
    decided = Counter(column(third, "x-homing-decision"))
    assert (decided, column(third, "x-homing-replica")) == ({"fallback": 60}, homes)
    born = column(await turns(nginx, [None] * 20), "x-session-id")
    nginx.start_picker("picker")
    until(lambda: nginx.picker("picker", "/readyz") is not None, what="the picker")

    async def asked() -> bool:  # each of NGINX's workers passes over a picker that failed for a second
        return "fallback" not in column(await turns(nginx, [*ids]), "x-homing-decision")

    await eventually(asked, "NGINX to ask the picker again")
    again = await turns(nginx, [*born])
    assert set(column(again, "x-homing-decision")) == {"hash"}


async def test_the_standby_decides_when_the_picker_is_dead(nginx: NginxStack) -> None:
    nginx.processes.kill("picker")
    answers = await turns(nginx, [f"s{i}" for i in range(20)], at_once=1)
    assert Counter(column(answers, "x-homing-decision")) == {"hash": 20}
    assert nginx.metric("homing_decisions_total", "standby") == 20


async def test_frozen_pickers_cost_time_and_no_request(nginx: NginxStack) -> None:
    for name in nginx.pickers:
        nginx.processes.signal(name, signal.SIGSTOP)
    answers = await turns(nginx, [f"s{i}" for i in range(20)])
    assert Counter(column(answers, "x-homing-decision")) == {"fallback": 20}


async def test_a_slot_is_held_until_the_stream_ends_or_the_client_leaves(nginx: NginxStack) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", nginx.port)
    writer.write(request(chat_body(MODEL, stream=True, max_tokens=100_000)))
    await reader.readuntil(b"data:")
    assert nginx.metric("homing_in_flight") == 1
    writer.close()
    await asyncio.to_thread(until, lambda: nginx.metric("homing_in_flight") == 0, 5, "the slot to be given back")


async def test_a_session_whose_home_dies_moves_once(nginx: NginxStack) -> None:
    first = (await turns(nginx, ["s"]))[0]
    home = first.headers["x-homing-replica"]
    nginx.processes.kill(home)
    moved = await ask(nginx.port, request(chat_body(MODEL), {"x-session-id": "s"}))
    assert moved.status == 200
    new_home = moved.headers["x-homing-replica"]
    assert new_home != home
    until(lambda: nginx.metric("homing_in_flight") == 0, 5, "the log")
    nginx.start_replica(POOL, home)
    await asyncio.sleep(3)
    assert column(await turns(nginx, ["s"] * 5, at_once=1), "x-homing-replica") == [new_home] * 5


async def test_a_closed_session_is_forgotten(nginx: NginxStack) -> None:
    await turns(nginx, ["s"])
    assert nginx.metric("homing_sessions") == 1
    await ask(nginx.port, request(chat_body(MODEL), {"x-session-id": "s", "x-session-close": "true"}))
    until(lambda: nginx.metric("homing_sessions") == 0, 5, "the session to be forgotten")


async def test_overload_of_all_is_refused_with_the_time_to_come_again(short_directory: Path) -> None:
    settings: dict[str, object] = {"placement": {"prefill_tokens_per_s": 1000, "reject_above_tokens": 5000}}
    pool = SimulatedPool("full", MODEL, 1, sim_flags=("--ttft-ms", "1500", "--itl-ms", "1"), settings=settings)
    large = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "word " * 20_000}], "max_tokens": 2})
    with nginx_stack(short_directory / "nginx-full", (pool,), pickers=("picker",)) as stack:
        served = asyncio.create_task(ask(stack.port, request(large.encode())))
        await asyncio.to_thread(until, lambda: stack.in_flight() == 1, 10, "the large one")
        refused = await ask(stack.port, request(chat_body(MODEL)))
        assert (refused.status, json.loads(refused.body)["error"]["type"]) == (429, "RateLimitError")
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert (await served).status == 200


async def test_a_pool_with_isolation_fails_closed(short_directory: Path) -> None:
    pools = (SimulatedPool("pool", MODEL, 1, settings={"isolation": {"cache_salt": "tenant"}}),)
    tenants = {"tenants": {"header": "x-tenant-id", "trusted": True}}
    with nginx_stack(short_directory / "nginx-isolated", pools, extra=tenants, pickers=("picker",)) as stack:
        served = await ask(stack.port, request(chat_body(MODEL)))
        assert (served.status, served.headers["x-homing-decision"]) == (200, "new")
        stack.processes.kill("picker")
        refused = await ask(stack.port, request(chat_body(MODEL)))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
