"""Sessions come home: with pickers, without them, and born while they are dead."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from e2e.client import USER, Answer, chat_body, many, request
from e2e.stack import SimulatedPool, StaticStack, static_stack, until

pytestmark = pytest.mark.e2e

POOLS = (
    SimulatedPool("ring", "ring-model", 3, aliases=("chat",)),
    SimulatedPool("maglev", "maglev-model", 3, hash="maglev"),
)
MODELS = ("ring-model", "maglev-model")
AT_ONCE = 20


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory, short_directory: Path) -> Iterator[StaticStack]:
    with static_stack(short_directory / "affinity", POOLS) as started:
        yield started


async def turns(stack: StaticStack, sessions: list[tuple[str, str | None]]) -> list[Answer]:
    """One turn of each (model, session id or None)."""
    messages = [request(chat_body(m), {"x-session-id": s} if s else None) for m, s in sessions]
    answers = await many(stack.data, messages, AT_ONCE)
    assert [a.status for a in answers] == [200] * len(sessions)
    return answers


def replicas(answers: list[Answer]) -> list[str]:
    return [a.headers["x-homing-replica"] for a in answers]


def kill_pickers(stack: StaticStack) -> None:
    stack.processes.kill("picker")
    stack.processes.kill("standby")
    until(lambda: stack.healthy_hosts("homing-pickers") == 0, what="Envoy to see that the pickers are dead")


@pytest.mark.parametrize("model", MODELS)
async def test_twenty_turns_stay_at_one_replica(two_pools: StaticStack, model: str) -> None:
    model = {"ring-model": "model-a", "maglev-model": "model-b"}[model]
    first = (await turns(two_pools, [(model, None)]))[0]
    session, home = first.headers["x-session-id"], first.headers["x-homing-replica"]
    assert first.headers["x-homing-decision"] == "new"
    for _ in range(19):
        answer = (await turns(two_pools, [(model, session)]))[0]
        assert (answer.headers["x-homing-replica"], answer.headers["x-homing-decision"]) == (home, "home")
        assert answer.headers["x-session-id"] == session


async def test_each_turn_finds_what_the_last_left_in_the_cache(two_pools: StaticStack) -> None:
    messages, session, cached = [{"role": "user", "content": "word " * 400}], None, []
    for turn in range(4):
        body = json.dumps({"model": "model-a", "messages": messages}).encode()
        answer = (await many(two_pools.data, [request(body, {"x-session-id": session} if session else None)], 1))[0]
        session = answer.headers["x-session-id"]
        said = json.loads(answer.body)
        cached.append(said["usage"]["prompt_tokens_details"]["cached_tokens"])
        messages += [said["choices"][0]["message"] | {}, {"role": "user", "content": f"and {turn} " * 50}]
    assert cached[0] == 0
    assert cached[1] >= 400
    assert cached == sorted(cached)


@pytest.mark.parametrize("model", ["model-a", "model-b"])
async def test_a_client_without_an_id_stays_home_for_twenty_turns(two_pools: StaticStack, model: str) -> None:
    """The unmodified openai client, as it is used: it sends the history and ignores our id."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Hello from {model}"}]
    homes, decisions = [], []
    async with openai.AsyncOpenAI(base_url=f"{two_pools.url}/v1", api_key="unused") as client:
        for turn in range(20):
            raw = await client.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=4)
            homes.append(raw.headers["x-homing-replica"])
            decisions.append(raw.headers["x-homing-decision"])
            said = raw.parse().choices[0].message.content
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"and {turn}?"}]
    assert len(set(homes)) == 1
    assert decisions == ["new", *["history"] * 19]


async def test_a_thousand_identical_first_messages_are_spread_by_load(short_directory: Path) -> None:
    pool = SimulatedPool("same", "same-model", 4, sim_flags=("--ttft-ms", "4000", "--itl-ms", "1"))
    with static_stack(short_directory / "same", (pool,)) as stack:
        answers = await many(stack.data, [request(chat_body("same-model"))] * 1000, 1000)
        assert {a.status for a in answers} == {200}
        counts = Counter(replicas(answers))
    assert len(counts) == 4
    assert max(counts.values()) <= 300


async def test_new_sessions_are_spread_by_load(two_pools: StaticStack) -> None:
    answers = await turns(two_pools, [("model-a", None)] * 150)
    counts = Counter(replicas(answers))
    assert len(counts) == 3
    assert max(counts.values()) <= 75


async def test_issued_ids_need_no_pin(stack: StaticStack) -> None:
    """The pickers forget everything and come back: second turns are home by the hash alone."""
    begun = await turns(stack, [(m, None) for m in MODELS for _ in range(100)])
    assert {a.headers["x-homing-decision"] for a in begun} == {"new"}
    kill_pickers(stack)
    for name in ("picker", "standby"):
        stack.start_picker(name)
    until(stack.pickers_ready)
    until(lambda: stack.pickers_in_service() == 2)
    models = [m for m in MODELS for _ in range(100)]
    again = await turns(stack, list(zip(models, (a.headers["x-session-id"] for a in begun), strict=True)))
    assert replicas(again) == replicas(begun)
    assert {a.headers["x-homing-decision"] for a in again} == {"hash"}


@pytest.mark.parametrize("fate", ["killed", "frozen"])
async def test_a_thousand_sessions_stay_home_without_pickers(stack: StaticStack, fate: str) -> None:
    """Half with ids of their own, half with ids that were issued; ring and Maglev."""
    given = [(m, f"client-{i}") for m in MODELS for i in range(250)]
    begun = await turns(stack, [*given, *((m, None) for m in MODELS for _ in range(250))])
    sessions = [*given, *zip((m for m in MODELS for _ in range(250)), ids(begun[500:]), strict=True)]
    if fate == "killed":
        kill_pickers(stack)
    else:
        for name in ("picker", "standby"):
            stack.processes.signal(name, signal.SIGSTOP)
        until(lambda: stack.healthy_hosts("homing-pickers") == 0, what="Envoy to see that the pickers hang")
    again = await turns(stack, sessions)
    assert {a.headers["x-homing-decision"] for a in again} == {"fallback"}
    assert replicas(again) == replicas(begun)
    assert ids(again) == [session for _, session in sessions]


async def test_an_alias_works_without_pickers(stack: StaticStack) -> None:
    kill_pickers(stack)
    for body in (chat_body("chat"), json.dumps({"messages": USER, "model": "chat"}).encode()):
        answer = (await many(stack.data, [request(body)], 1))[0]
        assert answer.status == 200, answer.body
        assert json.loads(answer.body)["model"] == "ring-model"


async def test_pickers_killed_under_load_fail_nothing(stack: StaticStack) -> None:
    """Not a request fails while they die, also in the second before Envoy notices."""
    sessions = [(m, f"s{i}") for i in range(300) for m in MODELS]
    begun = await turns(stack, sessions)
    for fate in (signal.SIGSTOP, signal.SIGKILL):
        for name in ("picker", "standby"):
            stack.processes.signal(name, fate)
        assert replicas(await turns(stack, sessions)) == replicas(begun)


async def test_sessions_born_without_pickers_stick_and_come_home_to_them(stack: StaticStack) -> None:
    kill_pickers(stack)
    models = [m for m in MODELS for _ in range(100)]
    born = await turns(stack, [(m, None) for m in models])
    assert {a.headers["x-homing-decision"] for a in born} == {"fallback"}
    assert len(set(ids(born))) == 200
    second = await turns(stack, list(zip(models, ids(born), strict=True)))
    assert replicas(second) == replicas(born)
    stack.start_picker("picker")
    until(lambda: stack.pickers_in_service() == 1)
    third = await turns(stack, list(zip(models, ids(born), strict=True)))
    assert {a.headers["x-homing-decision"] for a in third} == {"hash"}
    assert replicas(third) == replicas(born)


async def test_the_standby_takes_over_and_decides_the_same(stack: StaticStack) -> None:
    sessions = [(m, f"s{i}") for i in range(100) for m in MODELS]
    begun = await turns(stack, sessions)
    stack.processes.kill("picker")
    until(lambda: stack.pickers_in_service() == 1)
    again = await turns(stack, sessions)
    assert replicas(again) == replicas(begun)
    assert {a.headers["x-homing-decision"] for a in again} == {"hash"}
    assert stack.metric("homing_decisions_total", "standby", reason="hash") == 200


async def test_outcomes_reach_the_picker_that_decides_after_it_was_gone(stack: StaticStack) -> None:
    """Envoy keeps its access-log stream to the standby; then nobody who decides would hear who really served."""
    sessions = [("ring-model", f"o{i}") for i in range(20)]
    await turns(stack, sessions)
    stack.processes.kill("picker")
    until(lambda: stack.pickers_in_service() == 1)
    await turns(stack, sessions)
    stack.start_picker("picker")
    until(lambda: stack.pickers_in_service() == 2)

    def heard() -> float:
        return stack.metric("homing_outcomes_total", pool="ring")

    for _ in range(20):
        await turns(stack, sessions)
        await asyncio.sleep(0.5)
        if heard():
            break
    before = heard()
    assert before > 0
    await turns(stack, sessions)
    await asyncio.to_thread(until, lambda: heard() == before + len(sessions), 5, "the outcomes of all turns")


async def test_sessions_stay_home_across_a_restart_of_envoy(stack: StaticStack) -> None:
    begun = await turns(stack, [(m, None) for m in MODELS for _ in range(50)])
    stack.processes.kill("envoy")
    stack.start_envoy()
    stack.until_envoy_ready()
    models = [m for m in MODELS for _ in range(50)]
    again = await turns(stack, list(zip(models, ids(begun), strict=True)))
    assert replicas(again) == replicas(begun)


def ids(answers: list[Answer]) -> list[str]:
    return [a.headers["x-session-id"] for a in answers]
