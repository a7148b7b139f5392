"""Pickers that share their table: none of them is needed to keep a session where it lives."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import httpx
import pytest
from e2e.stack import SimulatedPool, StaticStack, static_stack, until

pytestmark = pytest.mark.e2e

POOLS = (SimulatedPool("shared", "shared-model", 3),)
LOST = "shared-0"
SESSIONS = [f"conversation-{i}" for i in range(36)]
TOLD_S = 0.5  # more than the 100 ms in which a sibling hears of everything, also on a busy machine


@pytest.fixture(scope="module")
def stack(short_directory: Path) -> Iterator[StaticStack]:
    directory = short_directory / "siblings"
    directory.mkdir()
    (directory / "secret").write_text("a secret of at least 16 bytes")
    extra = {"sessions": {"secret": "file:secret"}}
    with static_stack(directory, POOLS, extra, siblings=True) as started:
        yield started


def ask(stack: StaticStack, session: str) -> tuple[str, str]:
    """Who served, and why."""
    body = {"model": "shared-model", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    answer = httpx.post(
        f"{stack.url}/v1/chat/completions", json=body, headers={"x-session-id": session}, trust_env=False
    )
    assert answer.status_code == 200
    return answer.headers["x-homing-replica"], answer.headers["x-homing-decision"]


def ask_all(stack: StaticStack) -> dict[str, tuple[str, str]]:
    return {session: ask(stack, session) for session in SESSIONS}


@pytest.fixture(scope="module")
def homes(stack: StaticStack) -> dict[str, str]:
    """Where sessions live of which some have lost their first home, so that the hash says another than the table."""
    before = ask_all(stack)
    stack.processes.kill(LOST)
    until(lambda: stack.healthy_hosts() == 2, what="the loss")
    after = {session: replica for session, (replica, _) in ask_all(stack).items()}
    moved = [session for session in SESSIONS if before[session][0] == LOST]
    assert len(moved) > 3
    assert LOST not in after.values()
    stack.start_replica(POOLS[0], LOST)
    until(lambda: stack.healthy_hosts() == 3, what="its return")
    until(lambda: all(fit(stack, picker) for picker in stack.picker_http), what="its return for the pickers")
    return after


def fit(stack: StaticStack, picker: str) -> bool:
    census = httpx.get(f"http://127.0.0.1:{stack.picker_http[picker]}/replicas", trust_env=False).json()
    assert census["shared"], "the sessions of both are counted once"
    return [replica["state"] for replica in census["replicas"]] == ["ready"] * 3


def all_at_home(stack: StaticStack, homes: dict[str, str]) -> None:
    assert ask_all(stack) == {session: (replica, "home") for session, replica in homes.items()}


def restart(stack: StaticStack, picker: str) -> None:
    stack.processes.signal(picker, signal.SIGTERM)
    assert stack.processes.running.pop(picker).wait(10) == 0
    stack.start_picker(picker)
    until(stack.pickers_ready, what=f"{picker} again")
    until(lambda: stack.pickers_in_service() == 2, what=f"{picker} in Envoy")


def test_all_pickers_restarted_one_by_one_under_load_lose_no_pin(stack: StaticStack, homes: dict[str, str]):
    """Not one turn is placed by Envoy alone: who leaves says so first."""
    over = threading.Event()

    def turns(sessions: list[str]) -> list[tuple[str, str, str]]:
        served = []
        for session in cycle(sessions):
            served.append((session, *ask(stack, session)))
            if over.is_set():
                return served
        return served

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(turns, SESSIONS[i::4]) for i in range(4)]
        try:
            for picker in ("picker", "standby"):
                restart(stack, picker)
        finally:
            over.set()
        served = [turn for each in asking for turn in each.result()]
    assert [turn for turn in served if turn != (turn[0], homes[turn[0]], "home")] == []
    assert len(served) > 100
    all_at_home(stack, homes)


def test_after_a_kill_the_sibling_knows_all_that_was_told(stack: StaticStack, homes: dict[str, str]):
    all_at_home(stack, homes)
    fresh = {f"fresh-{i}": ask(stack, f"fresh-{i}")[0] for i in range(6)}
    time.sleep(TOLD_S)
    stack.processes.kill("picker")
    until(lambda: stack.healthy_hosts("homing-pickers") == 1, what="the loss of the picker")
    all_at_home(stack, homes)
    assert {session: ask(stack, session) for session in fresh} == {s: (replica, "home") for s, replica in fresh.items()}
    stack.start_picker("picker")
    until(stack.pickers_ready, what="the picker again")
    until(lambda: stack.pickers_in_service() == 2, what="the picker in Envoy")
    all_at_home(stack, homes)


def test_a_session_closed_at_one_picker_is_closed_at_all(stack: StaticStack):
    assert ask(stack, "ends")[1] == "hash"
    until(lambda: stack.metric("homing_pins_heard_total", "standby", peer="sibling") > 0, what="the exchange")
    body = {"model": "shared-model", "messages": [], "max_tokens": 2}
    headers = {"x-session-id": "ends", "x-session-close": "true"}
    httpx.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers, trust_env=False)
    time.sleep(TOLD_S)
    stack.processes.kill("picker")
    until(lambda: stack.healthy_hosts("homing-pickers") == 1, what="the loss of the picker")
    assert ask(stack, "ends")[1] == "hash"
