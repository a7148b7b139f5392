"""Pickers hear what the engines' caches hold, and what a restart loses. The sim's events are vLLM's by calibration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.stack import SimulatedPool, StaticStack, replica_ids, static_stack, until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def stack(short_directory: Path) -> Iterator[StaticStack]:
    directory = short_directory / "prefixes"
    config = {
        "enable_kv_cache_events": True,
        "endpoint": f"ipc://{directory}/{{id}}.kv",
        "replay_endpoint": f"ipc://{directory}/{{id}}.replay",
    }
    pool = SimulatedPool(
        "p",
        "model",
        3,
        sim_flags=("--ttft-ms", "1", "--itl-ms", "1", "--kv-events-config", json.dumps(config)),
        engine={"kv_events": config["endpoint"], "replay": config["replay_endpoint"]},
    )
    with static_stack(directory, (pool,)) as started:
        yield started


def ask(stack: StaticStack, system: str, user: str) -> str:
    """A first turn without an id; who served it."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    body = {"model": "model", "max_tokens": 2, "messages": messages}
    answer = httpx.post(f"{stack.url}/v1/chat/completions", json=body, trust_env=False, timeout=10)
    assert answer.status_code == 200
    return answer.headers["x-homing-replica"]


def counted(stack: StaticStack, name: str) -> float:
    """Of all engines together."""
    texts = [httpx.get(f"http://127.0.0.1:{p}/metrics", trust_env=False).text for p in stack.replica_ports.values()]
    return sum(float(n) for text in texts for n in re.findall(rf"^vllm:{name}{{.*}} (\S+)$", text, re.MULTILINE))


def blocks(stack: StaticStack, replica: str, picker: str = "picker") -> float:
    return stack.metric("homing_prefix_blocks", picker, replica=replica)


def test_a_tenants_users_are_served_where_its_prompt_is(stack: StaticStack) -> None:
    """Six tenants, five users each, who come in turns and name no session."""
    served: dict[int, list[str]] = {tenant: [] for tenant in range(6)}
    for user in range(5):
        for tenant, by in served.items():
            by.append(ask(stack, f"You work for tenant {tenant}. " + "Be kind and brief. " * 1200, f"I am {user}"))
    assert [len(set(by)) for by in served.values()] == [1] * 6
    assert len({by[0] for by in served.values()}) > 1
    reused, asked = counted(stack, "prefix_cache_hits_total"), counted(stack, "prefix_cache_queries_total")
    assert reused / asked > 0.75  # all but the first of five, and what is each user's own


def test_every_picker_knows_the_blocks_of_each_replica_until_it_restarts(stack: StaticStack) -> None:
    replicas = replica_ids(stack.pools[0])
    before = {r: blocks(stack, r) for r in replicas}
    learned = stack.metric("homing_prompts_learned_total", outcome="learned")
    home = ask(stack, "You are the helper of a shop that sells tea and coffee. " * 100, "good morning")
    until(lambda: blocks(stack, home) > before[home] + 50, what="the blocks of a long prompt")
    until(lambda: blocks(stack, home, "standby") == blocks(stack, home), what="the same at the standby")
    assert [blocks(stack, r) for r in replicas if r != home] == [n for r, n in before.items() if r != home]
    assert stack.metric("homing_prefix_complete", replica=home) == 1
    until(
        lambda: stack.metric("homing_prompts_learned_total", outcome="learned") > learned, what="a prompt to be learned"
    )

    known = blocks(stack, home)
    stack.processes.kill("picker")
    stack.start_picker("picker")
    until(stack.pickers_ready, what="a new picker")
    until(lambda: blocks(stack, home) == known, what="a new picker to hear what it missed")

    stack.processes.kill(home)
    stack.start_replica(stack.pools[0], home)
    until(lambda: blocks(stack, home) == 0, what="a cold replica")
