"""The real anthropic client against the gateway: its sessions by a header, as an agent's, and by nothing at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from e2e.stack import SimulatedPool, StaticStack, static_stack

pytestmark = pytest.mark.e2e

MODEL = "claude-like"
TURNS = 6


@pytest.fixture(scope="module")
def stack() -> Iterator[StaticStack]:
    directory = Path(tempfile.mkdtemp(prefix="homing-anthropic-"))  # pytest's own are too long for Unix sockets
    try:
        with static_stack(directory, (SimulatedPool("claude", MODEL, 3),)) as started:
            yield started
    finally:
        shutil.rmtree(directory)


class Served:
    """Who served each answer, and why there, as a hook of the HTTP client saw it."""

    def __init__(self, stack: StaticStack, **headers: str) -> None:
        self.replicas: list[str] = []
        self.decisions: list[str] = []
        http = anthropic.DefaultHttpxClient(event_hooks={"response": [self._note]}, trust_env=False)
        self.client = anthropic.Anthropic(
            base_url=stack.url, api_key="none", http_client=http, default_headers=headers, max_retries=0
        )

    def _note(self, response: httpx.Response) -> None:
        self.replicas.append(response.headers.get("x-homing-replica", ""))
        self.decisions.append(response.headers.get("x-homing-decision", ""))

    def talk(self, opening: str) -> None:
        """A conversation, every second turn streamed; each turn brings all before it."""
        messages: list[Any] = [{"role": "user", "content": opening}]
        asked: dict[str, Any] = {"model": MODEL, "max_tokens": 8, "system": "Be brief.", "messages": messages}
        with self.client as client:
            for turn in range(TURNS):
                if turn % 2:
                    with client.messages.stream(**asked) as stream:
                        said = stream.get_final_text()
                else:
                    said = client.messages.create(**asked).content[0].text
                assert said
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"and {turn}?"}]
        assert len(set(self.replicas)) == 1, self.decisions


@pytest.mark.parametrize("number", range(3))
def test_a_session_in_default_headers_stays_home(stack: StaticStack, number: int) -> None:
    served = Served(stack, **{"x-session-id": f"anthropic-{number}"})
    served.talk(f"hello {number}")
    assert served.decisions[1:] == ["home"] * (TURNS - 1)


def test_agents_of_one_session_are_conversations_of_their_own(stack: StaticStack) -> None:
    headers = {"x-claude-code-session-id": "c1"}
    main, sub = Served(stack, **headers), Served(stack, **headers, **{"x-claude-code-agent-id": "a1"})
    main.talk("main")
    sub.talk("sub")
    assert (main.decisions[0] == "home", sub.decisions[0] == "home") == (False, False)
    assert main.decisions[1:] == sub.decisions[1:] == ["home"] * (TURNS - 1)


@pytest.mark.parametrize("opening", ["one subject that is long enough", "another subject that is long enough"])
def test_without_a_header_the_history_leads_home(stack: StaticStack, opening: str) -> None:
    served = Served(stack)
    served.talk(opening)
    assert served.decisions[1:] == ["history"] * (TURNS - 1)


def test_an_engines_error_is_the_clients_own(stack: StaticStack) -> None:
    with Served(stack).client as client, pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nobody's", max_tokens=1, messages=[{"role": "user", "content": "x"}])
