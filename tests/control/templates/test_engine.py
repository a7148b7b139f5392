"""Records by asking a replica: those of its template, and of what the engine does before it."""

from __future__ import annotations

import httpx
import msgspec
import pytest
from published_templates import published

from homing.control.templates.engine import Engine, EngineError, probed
from homing.core.template.probe import RefusedError
from homing.core.template.record import Capabilities, Fate, Think


@pytest.fixture
async def client():
    async with httpx.AsyncClient() as made:
        yield made


HELLO = [{"role": "user", "content": "hello"}]


def answering(*answers: httpx.Response | Exception) -> httpx.AsyncClient:
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if isinstance(left[0], Exception):
            raise left[0]
        return left.pop(0)

    asked: list[httpx.Request] = []
    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    client.asked = asked  # type: ignore[attr-defined]
    return client


async def test_the_prompt_of_a_conversation(start_engine, client):
    engine = Engine(client, await start_engine(None), "m")
    assert await engine.render(HELLO) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen2_5", Capabilities(default_system=True)),
        ("qwen3", Capabilities(think=Think.STRIPPED, stable_think=False)),
        ("gemma3", Capabilities(
            system=Fate.MERGED, systems=Fate.REFUSED, later_system=Fate.REFUSED, developer=Fate.MERGED,
            alternates=True, user_first=True, tool=Fate.REFUSED, tool_calls=Fate.DROPPED,
            tool_calls_with_content=Fate.DROPPED, parallel_calls=Fate.REFUSED, trims=True,
        )),
    ],
)  # fmt: skip
async def test_the_record_of_an_engine(start_engine, client, name: str, expected: Capabilities):
    engine = Engine(client, await start_engine(published("trl", name)), "m")
    assert await probed(engine.render, b"seed") == expected


async def test_a_refusal_has_the_engines_words(start_engine, client):
    engine = Engine(client, await start_engine("{{ raise_exception('no such thing') }}"), "m")
    with pytest.raises(RefusedError, match=r"^no such thing$"):
        await engine.render(HELLO)


async def test_the_key_and_the_tools_are_sent():
    client = answering(httpx.Response(200, json={"tokens": [1]}), httpx.Response(200, json={"prompt": "p"}))
    assert await Engine(client, "h:1", "m", "sk").render(HELLO, [{"type": "function"}]) == "p"
    assert [(str(r.url), r.headers["authorization"], msgspec.json.decode(r.content)) for r in client.asked] == [
        ("http://h:1/tokenize", "Bearer sk",
         {"model": "m", "messages": HELLO, "add_generation_prompt": True, "tools": [{"type": "function"}]}),
        ("http://h:1/detokenize", "Bearer sk", {"model": "m", "tokens": [1]}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.ConnectError("gone"), "/tokenize: ConnectError"),
        (httpx.Response(401), "/tokenize: status 401"),
        (httpx.Response(404), "/tokenize: status 404"),
        (httpx.Response(500), "/tokenize: status 500"),
        (httpx.Response(302, headers={"location": "http://elsewhere/"}), "/tokenize: status 302"),
        (httpx.Response(200, text="<html>"), "not an answer of vLLM's"),
        (httpx.Response(200, json={"tokens": "x"}), "not an answer of vLLM's"),
        (httpx.Response(200, content=b" " * (17 << 20)), "/tokenize: more than 16777216 bytes"),
    ],
)
async def test_an_engine_that_does_not_answer_as_vllm_does_is_no_refusal(answer: httpx.Response | Exception, why: str):
    with pytest.raises(EngineError, match=why):
        await probed(Engine(answering(answer), "h:1", "m").render, b"seed")
