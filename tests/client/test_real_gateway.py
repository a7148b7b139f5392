"""The real openai clients, bound, through real Envoy and a picker."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from e2e.stack import SimulatedPool, StaticStack, static_stack
from openai.types.chat import ChatCompletionMessageParam

from homing_client import Conversation

pytestmark = pytest.mark.e2e

MODEL = "client-model"
TURNS = 10
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def stack() -> Iterator[StaticStack]:
    directory = Path(tempfile.mkdtemp(prefix="homing-client-"))  # pytest's own are too long for Unix sockets
    try:
        with static_stack(directory, (SimulatedPool("client", MODEL, 3),)) as started:
            yield started
    finally:
        shutil.rmtree(directory)


class Served:
    """What the gateway said of each answer, told by a hook of the HTTP client."""

    def __init__(self) -> None:
        self.by_session: dict[str, list[tuple[str, str]]] = {}

    def note(self, response: httpx.Response) -> None:
        said = response.headers
        self.by_session.setdefault(said["x-session-id"], []).append(
            (said["x-homing-replica"], said["x-homing-decision"])
        )

    async def note_async(self, response: httpx.Response) -> None:
        self.note(response)

    def assert_at_home(self, conversation: Conversation) -> None:
        """All turns at one replica, and known there from the second on."""
        assert conversation.id is not None
        served = self.by_session[conversation.id]
        assert len({replica for replica, _ in served}) == 1
        assert [decision for _, decision in served] == ["new", *["home"] * (TURNS - 1)]


def test_turns_of_two_conversations_stay_home_on_one_client(stack: StaticStack) -> None:
    served = Served()
    http = openai.DefaultHttpxClient(event_hooks={"response": [served.note]}, trust_env=False)
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", http_client=http) as client:
        one, two = Conversation(), Conversation()
        for turn in range(TURNS):
            for conversation in (one, two):
                bound = conversation.bind(client)
                if turn % 2:
                    with bound.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True) as stream:
                        assert any(chunk.choices and chunk.choices[0].delta.content for chunk in stream)
                else:
                    assert bound.chat.completions.create(model=MODEL, messages=MESSAGES).choices[0].message.content
    assert set(served.by_session) == {one.id, two.id}
    served.assert_at_home(one)
    served.assert_at_home(two)


async def test_async_turns_of_two_conversations_stay_home_on_one_client(stack: StaticStack) -> None:
    served = Served()
    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [served.note_async]}, trust_env=False)
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", http_client=http) as client:
        one, two = Conversation(), Conversation()
        for turn in range(TURNS):
            for conversation in (one, two):
                bound = conversation.bind(client)
                if turn % 2:
                    stream = await bound.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
                    assert any([chunk.choices and chunk.choices[0].delta.content async for chunk in stream])
                else:
                    answer = await bound.chat.completions.create(model=MODEL, messages=MESSAGES)
                    assert answer.choices[0].message.content
    assert set(served.by_session) == {one.id, two.id}
    served.assert_at_home(one)
    served.assert_at_home(two)


def test_turns_over_httpx_stay_home(stack: StaticStack) -> None:
    served = Served()
    with httpx.Client(base_url=f"{stack.url}/v1", event_hooks={"response": [served.note]}, trust_env=False) as client:
        conversation = Conversation()
        for _ in range(TURNS):
            body = {"model": MODEL, "messages": MESSAGES}
            assert conversation.bind(client).post("chat/completions", json=body).status_code == 200
    served.assert_at_home(conversation)


def test_a_stored_id_goes_home_from_another_process(stack: StaticStack) -> None:
    """All that the second client knows is the id."""
    served = Served()
    stored = None
    for _ in range(TURNS):
        http = openai.DefaultHttpxClient(event_hooks={"response": [served.note]}, trust_env=False)
        with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", http_client=http) as client:
            conversation = Conversation(id=stored)
            conversation.bind(client).chat.completions.create(model=MODEL, messages=MESSAGES)
            stored = conversation.id
    served.assert_at_home(conversation)


def test_what_is_no_turn_begins_no_session(stack: StaticStack) -> None:
    with openai.OpenAI(
        base_url=f"{stack.url}/v1", api_key="none", http_client=openai.DefaultHttpxClient(trust_env=False)
    ) as client:
        conversation = Conversation()
        bound = conversation.bind(client)
        assert [model.id for model in bound.models.list()] == [MODEL]
        with pytest.raises(openai.NotFoundError):
            bound.chat.completions.create(model="nobody's", messages=MESSAGES)
        assert conversation.id is None


def test_the_gateway_accepts_the_close(stack: StaticStack) -> None:
    with openai.OpenAI(
        base_url=f"{stack.url}/v1", api_key="none", http_client=openai.DefaultHttpxClient(trust_env=False)
    ) as client:
        conversation = Conversation()
        conversation.bind(client).chat.completions.create(model=MODEL, messages=MESSAGES)
        assert conversation.id is not None
        conversation.close(client)
        assert conversation.id is None
