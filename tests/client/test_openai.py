"""openai's clients, bound: over the HTTP client that they bring, and over httpx."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
from client.gateway import Gateway
from openai.types.chat import ChatCompletionMessageParam

from homing_client import Conversation

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
HTTP_CLIENTS: dict[str, tuple[type | None, type | None]] = {
    "its own": (None, None),
    "httpx": (httpx.Client, httpx.AsyncClient),
    "httpx2": (httpx2.Client, httpx2.AsyncClient),
}


@pytest.fixture(params=HTTP_CLIENTS)
def http_client(request: pytest.FixtureRequest) -> tuple[type | None, type | None]:
    return HTTP_CLIENTS[request.param]


@pytest.fixture
async def sync_client(gateway: Gateway, http_client: tuple[type | None, type | None]) -> AsyncIterator[openai.OpenAI]:
    with openai.OpenAI(**settings(gateway, http_client[0])) as client:
        yield client


@pytest.fixture
async def async_client(
    gateway: Gateway, http_client: tuple[type | None, type | None]
) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(**settings(gateway, http_client[1])) as client:
        yield client


def settings(gateway: Gateway, http_client: type | None) -> dict[str, Any]:
    made = {} if http_client is None else {"http_client": http_client(trust_env=False)}
    return {"base_url": gateway.url, "api_key": "key", "max_retries": 2, "default_headers": {"x-mine": "1"}, **made}


def test_turns_carry_the_id(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    conversation = Conversation()
    client = conversation.bind(sync_client)
    assert type(client) is openai.OpenAI
    for _ in range(3):
        assert client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message.content == "Hello you"
    assert gateway.sessions == [None, "issued-1", "issued-1"]
    assert {(s.target, s.headers["authorization"], s.headers["x-mine"]) for s in gateway.seen} == {
        ("/v1/chat/completions", "Bearer key", "1")
    }


async def test_async_turns_carry_the_id(gateway: Gateway, async_client: openai.AsyncOpenAI) -> None:
    conversation = Conversation()
    client = conversation.bind(async_client)
    assert type(client) is openai.AsyncOpenAI
    for _ in range(3):
        answer = await client.chat.completions.create(model="m", messages=MESSAGES)
        assert answer.choices[0].message.content == "Hello you"
    assert gateway.sessions == [None, "issued-1", "issued-1"]


def test_conversations_share_the_connections_of_one_client(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    one, two = Conversation(), Conversation("stored")
    for conversation in (one, two, one):
        conversation.bind(sync_client).chat.completions.create(model="m", messages=MESSAGES)
    sync_client.chat.completions.create(model="m", messages=MESSAGES)
    assert gateway.sessions == [None, "stored", "issued-1", None]
    assert len({seen.port for seen in gateway.seen}) == 1


def test_retries_keep_the_id(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    gateway.fails = [503, 429]
    Conversation("s").bind(sync_client).chat.completions.create(model="m", messages=MESSAGES)
    assert [(s.session, s.headers["x-stainless-retry-count"]) for s in gateway.seen] == [
        ("s", "0"),
        ("s", "1"),
        ("s", "2"),
    ]


async def test_async_retries_keep_the_id(gateway: Gateway, async_client: openai.AsyncOpenAI) -> None:
    gateway.fails = [503, 429]
    await Conversation("s").bind(async_client).chat.completions.create(model="m", messages=MESSAGES)
    assert gateway.sessions == ["s", "s", "s"]


def test_the_id_is_known_when_a_stream_begins(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    conversation = Conversation()
    stream = conversation.bind(sync_client).chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert conversation.id == "issued-1"
    assert not gateway.go_on.is_set()
    gateway.go_on.set()
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello you"


async def test_the_id_is_known_when_an_async_stream_begins(gateway: Gateway, async_client: openai.AsyncOpenAI) -> None:
    conversation = Conversation()
    client = conversation.bind(async_client)
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert conversation.id == "issued-1"
    assert not gateway.go_on.is_set()
    gateway.go_on.set()
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello you"


def test_options_of_a_bound_client_leave_it_bound(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    client = Conversation("s").bind(sync_client)
    client.with_options(timeout=3).chat.completions.create(model="m", messages=MESSAGES)
    client.with_raw_response.chat.completions.create(model="m", messages=MESSAGES)
    client.embeddings.with_streaming_response.create(model="m", input="hello").__enter__().close()
    assert gateway.sessions == ["s", "s", "s"]


def test_close_through_openai(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    conversation = Conversation("s")
    conversation.close(sync_client)
    assert [(s.method, s.target, s.session, s.headers["x-session-close"]) for s in gateway.seen] == [
        ("GET", "/v1/models", "s", "true")
    ]
    assert conversation.id is None


async def test_close_through_async_openai(gateway: Gateway, async_client: openai.AsyncOpenAI) -> None:
    conversation = Conversation("s")
    await conversation.aclose(async_client)
    assert [(s.method, s.target, s.session, s.headers["x-session-close"]) for s in gateway.seen] == [
        ("GET", "/v1/models", "s", "true")
    ]
    assert conversation.id is None


def test_a_close_that_the_gateway_refuses_raises_as_openai_does(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    conversation = Conversation("s")
    gateway.fails = [401]
    with pytest.raises(openai.AuthenticationError):
        conversation.close(sync_client)
    assert conversation.id == "s"


def test_the_last_turn_may_close(gateway: Gateway, sync_client: openai.OpenAI) -> None:
    conversation = Conversation("s")
    client = conversation.bind(sync_client)
    client.chat.completions.create(model="m", messages=MESSAGES, extra_headers={"x-session-close": "true"})
    assert conversation.id is None
    assert gateway.sessions == ["s"]
