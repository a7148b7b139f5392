"""A real engine that drains, is killed in the middle of a stream, and comes back cold."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping

import pytest
from e2e.client import Answer, ask, request
from e2e.up import eventually
from real_vllm.engines import MODEL, Engine, cached, reused
from real_vllm.gateway import ENDS, POOL, Gateway, Messages

from bench.calibration.engines import BLOCK_SIZE
from bench.calibration.prose import Prose

pytestmark = pytest.mark.vllm

STREAM_TOKENS = 2000
STREAM_S = 120.0
BEGUN_S = 30.0


def opening(seed: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Talk {seed}. {Prose(seed).words(400)}"}]


def turn(seed: int, number: int) -> list[dict[str, str]]:
    """The messages of a talk's turn; answers are scripted."""
    further = [{"role": "assistant", "content": "Well."}, {"role": "user", "content": "And then?"}]
    return opening(seed) + further * (number - 1)


def one_talk_each(homing: Gateway, fleet: Mapping[str, Engine], first: int) -> dict[str, tuple[str, int]]:
    """By the replica where it lives: a session and its talk's seed."""
    found: dict[str, tuple[str, int]] = {}
    for seed in range(first, first + 20):
        if len(found) == len(fleet):
            return found
        answer = homing.chat(opening(seed))
        found.setdefault(answer.headers["x-homing-replica"], (answer.headers["x-session-id"], seed))
    raise AssertionError(f"20 sessions, and only {sorted(found)} have one")


def stream(
    homing: Gateway, session: str, messages: Messages, tokens: int, into: Answer | None = None
) -> asyncio.Task[Answer]:
    body = {"model": MODEL, "messages": messages, **ENDS, "max_tokens": tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    message = request(json.dumps(body).encode(), {"x-session-id": session})
    return asyncio.create_task(ask(homing.listen, message, STREAM_S, into=into))


async def begun(streams: Mapping[str, Answer], wanted: str) -> None:
    """Until the stream of the session that lives at `wanted` has begun. What fails says who serves what."""

    def said(answer: Answer) -> str:
        served = f"{answer.headers.get('x-homing-replica')} ({answer.headers.get('x-homing-decision')})"
        return f"{served}, {len(answer.chunks)} chunks, {'complete' if answer.complete else 'not complete'}"

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BEGUN_S):
            while not streams[wanted].chunks:  # noqa: ASYNC110 (what ends it is elsewhere)
                await asyncio.sleep(0.02)
    served = streams[wanted].headers.get("x-homing-replica")
    assert served == wanted, {name: said(answer) for name, answer in streams.items()}


def is_whole(answer: Answer, tokens: int) -> bool:
    ended = answer.complete and answer.body.rstrip().endswith(b"data: [DONE]")
    return ended and f'"completion_tokens":{tokens}'.encode() in answer.body


async def test_a_drain_waits_for_the_stream_and_moves_nobody(homing: Gateway, fleet: dict[str, Engine]) -> None:
    homing.change(list(fleet), sessions={"ttl_s": 1})  # from then on a session without a stream is idle
    try:
        talks = await asyncio.to_thread(one_talk_each, homing, fleet, 500)
        session, seed = talks["b"]
        so_far = {"b": Answer()}
        streaming = stream(homing, session, turn(seed, 2), 2 * STREAM_TOKENS, so_far["b"])
        await begun(so_far, "b")
        drain = ("drain", f"{POOL}/b", "--wait", "--deadline", "100s", "--json")
        told = json.loads(await asyncio.to_thread(homing.homing, *drain))
        assert (told["state"], told["why"], told["moved"]) == ("left", "idle", 0)
        assert is_whole(await asyncio.wait_for(streaming, 2), 2 * STREAM_TOKENS)  # it had ended by then
        served = [homing.chat(opening(seed)).headers["x-homing-replica"] for seed in range(520, 526)]
        assert set(served) == {"a", "c"}
    finally:
        homing.change(list(fleet))
        await asyncio.to_thread(homing.homing, "undrain", f"{POOL}/b")
        await eventually(lambda: homing.state("b") == "ready", "b to serve again")


async def test_a_killed_engine_costs_its_own_stream_only_and_comes_back_cold(
    homing: Gateway, fleet: dict[str, Engine]
) -> None:
    talks = await asyncio.to_thread(one_talk_each, homing, fleet, 540)
    (session, seed), victim, epoch = talks["c"], fleet["c"], homing.replica("c")["epoch"]
    await eventually(lambda: homing.blocks("c") > 0, "blocks of c")

    so_far = {name: Answer() for name in talks}
    streams = {name: stream(homing, s, turn(n, 2), STREAM_TOKENS, so_far[name]) for name, (s, n) in talks.items()}
    await begun(so_far, "c")  # the others may wait still, or have ended: what a busy machine does first is not asserted
    await asyncio.to_thread(victim.kill)
    broken = await asyncio.wait_for(streams["c"], 10)
    assert (broken.status, broken.complete, b"[DONE]" in broken.body) == (200, False, False)

    moved = await asyncio.to_thread(homing.chat, turn(seed, 3), session)
    heir = moved.headers["x-homing-replica"]
    assert heir in ("a", "b")
    again = await asyncio.to_thread(homing.chat, turn(seed, 4), session)
    assert again.headers["x-homing-replica"] == heir  # by a retry, until the pickers know
    at_heir = [fleet[heir].tokens(turn(seed, number)) for number in (3, 4)]
    assert cached(again) == reused(at_heir[:1], at_heir[1]) > 0
    for name in ("a", "b"):
        answer = await streams[name]
        assert (is_whole(answer, STREAM_TOKENS), answer.headers["x-homing-replica"]) == (True, name)
    await eventually(lambda: homing.blocks("c") == 0, "the blocks of c to be forgotten")

    await asyncio.to_thread(victim.restart)
    await eventually(lambda: homing.state("c") == "ready" and homing.replica("c")["epoch"] != epoch, "the new process")
    later = await asyncio.to_thread(homing.chat, turn(seed, 5), session)
    assert (later.headers["x-homing-replica"], later.headers["x-homing-decision"]) == (heir, "home")
    cold = victim.http.post("/v1/chat/completions", json={"model": MODEL, "messages": opening(seed), **ENDS})
    assert cached(cold) == 0
    stored = len(victim.tokens(opening(seed))) // BLOCK_SIZE
    await eventually(lambda: homing.blocks("c") == stored, "those that it has now")
    assert homing.metric("homing_prefix_complete", pool=POOL, replica="c") == 1
