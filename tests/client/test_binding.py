"""Bound clients of both HTTP libraries, sync and async, against a real server."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from client.conftest import Library
from client.gateway import Gateway

from homing_client import Conversation


async def test_ten_turns_carry_the_id_that_the_first_answer_brought(gateway: Gateway, library: Library) -> None:
    conversation = Conversation()
    client = conversation.bind(library.client(base_url=gateway.url))
    for _ in range(10):
        assert (await library.turn(client)).status_code == 200
    assert gateway.sessions == [None, *["issued-1"] * 9]
    assert conversation.id == "issued-1"


async def test_conversations_on_one_client_are_apart_and_share_its_connections(
    gateway: Gateway, library: Library
) -> None:
    client = library.client(base_url=gateway.url)
    one, two = Conversation(), Conversation(id="stored")
    for _ in range(2):
        for conversation in (one, two):
            await library.turn(conversation.bind(client))
    assert gateway.sessions == [None, "stored", "issued-1", "stored"]
    assert len({seen.port for seen in gateway.seen}) == 1


async def test_the_original_client_sends_no_id(gateway: Gateway, library: Library) -> None:
    client = library.client(base_url=gateway.url)
    await library.turn(Conversation("s").bind(client))
    await library.turn(client)
    assert gateway.sessions == ["s", None]


async def test_a_bound_client_bound_again_speaks_for_the_other_conversation(gateway: Gateway, library: Library) -> None:
    client = Conversation("a").bind(library.client(base_url=gateway.url))
    other = Conversation()
    await library.turn(other.bind(client))
    await library.turn(other.bind(client))
    assert gateway.sessions == [None, "issued-1"]


async def test_the_conversation_owns_the_header(gateway: Gateway, library: Library) -> None:
    conversation = Conversation()
    client = conversation.bind(library.client(base_url=gateway.url, headers={"x-session-id": "everybody's"}))
    await library.turn(client)
    await library.turn(client, headers={"X-Session-Id": "by hand"})
    assert gateway.sessions == [None, "issued-1"]


async def test_a_bound_client_has_the_settings_of_the_original(gateway: Gateway, library: Library) -> None:
    hooked: list[str] = []

    def hook(message: Any) -> None:
        hooked.append(type(message).__name__)

    async def async_hook(message: Any) -> None:
        hook(message)

    hooks = [async_hook if library.is_async else hook]
    original = library.client(
        auth=("user", "password"),
        base_url=gateway.url,
        cookies={"flavour": "plain"},
        event_hooks={"request": hooks, "response": hooks},
        follow_redirects=True,
        headers={"x-mine": "1"},
        max_redirects=7,
        params={"page": "2"},
        timeout=3.5,
    )
    client = Conversation("s").bind(original)
    await library.turn(client)
    [seen] = gateway.seen
    assert seen.target == "/v1/chat/completions?page=2"
    assert seen.headers["authorization"].startswith("Basic ")
    assert (seen.headers["cookie"], seen.headers["x-mine"]) == ("flavour=plain", "1")
    assert hooked == ["Request", "Response"]
    assert (client.timeout, client.follow_redirects, client.max_redirects) == (library.module.Timeout(3.5), True, 7)


async def test_the_originals_proxy_carries_the_requests(gateway: Gateway, library: Library) -> None:
    client = library.client(base_url="http://gateway.invalid/v1", proxy=gateway.origin)
    await library.turn(Conversation("s").bind(client))
    assert [(s.target, s.session) for s in gateway.seen] == [("http://gateway.invalid/v1/chat/completions", "s")]


async def test_two_first_turns_at_once_keep_one_id(
    gateway: Gateway, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.meeting = threading.Barrier(2)
    conversation = Conversation()
    client = conversation.bind(library.client(base_url=gateway.url))
    answers = await asyncio.gather(library.turn(client), library.turn(client))
    gateway.meeting = None
    assert {a.headers["x-session-id"] for a in answers} == {"issued-1", "issued-2"}
    kept = conversation.id
    assert kept in {"issued-1", "issued-2"}
    assert len([r for r in caplog.records if r.name == "homing_client"]) == 1
    for _ in range(3):
        await library.turn(client)
    assert gateway.sessions == [None, None, kept, kept, kept]


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_an_answer_that_failed_begins_no_session_and_ends_none(
    gateway: Gateway, library: Library, status: int
) -> None:
    conversation = Conversation()
    client = conversation.bind(library.client(base_url=gateway.url))
    gateway.fails = [status]
    await library.turn(client)
    assert conversation.id is None
    await library.turn(client)
    gateway.fails = [status]
    await library.turn(client)
    await library.turn(client)
    assert gateway.sessions == [None, None, "issued-2", "issued-2"]


async def test_a_list_of_models_begins_no_session_and_goes_with_one(gateway: Gateway, library: Library) -> None:
    conversation = Conversation()
    client = conversation.bind(library.client(base_url=gateway.url))
    await library.do(client.get, "models")
    assert conversation.id is None
    await library.turn(client)
    await library.do(client.get, "models")
    assert gateway.sessions == [None, None, "issued-2"]


async def test_an_id_that_the_gateway_renews_is_followed(gateway: Gateway, library: Library) -> None:
    gateway.renames = {"old": "renewed"}
    client = Conversation("old").bind(library.client(base_url=gateway.url))
    await library.turn(client)
    await library.turn(client)
    assert gateway.sessions == ["old", "renewed"]


async def test_a_redirect_at_the_gateway_keeps_the_id(gateway: Gateway, library: Library) -> None:
    gateway.redirect = "/v1/chat/completions"
    conversation = Conversation("s")
    client = conversation.bind(library.client(base_url=gateway.url, follow_redirects=True))
    await library.turn(client, "moved")
    assert [(s.target, s.session) for s in gateway.seen] == [("/v1/moved", "s"), ("/v1/chat/completions", "s")]


async def test_a_redirect_to_another_origin_takes_no_id_there_and_brings_none_back(
    gateway: Gateway, other: Gateway, library: Library
) -> None:
    gateway.redirect = f"{other.url}/chat/completions"
    other.renames = {"issued-1": "theirs"}
    for conversation, before in ((Conversation("s"), "s"), (Conversation(), None)):
        client = conversation.bind(library.client(base_url=gateway.url, follow_redirects=True))
        answer = await library.turn(client, "moved", headers={"x-session-close": "true"})
        assert answer.headers["x-session-id"] in {"theirs", "issued-2"}
        assert gateway.seen[-1].session == before
        assert other.seen[-1].session is None
        assert "x-session-close" not in other.seen[-1].headers
        assert conversation.id == before


REDIRECTS = [
    ("http://gw/v1/a", "http://gw:80/b", True),
    ("http://gw/v1/a", "https://gw/v1/a", True),
    ("http://gw/v1/a", "http://gw:8080/v1/a", False),
    ("http://gw:8080/v1/a", "https://gw/v1/a", False),
    ("http://gw/v1/a", "https://gw:8443/v1/a", False),
    ("https://gw/v1/a", "http://gw/v1/a", False),
    ("https://gw/v1/a", "https://www.gw/v1/a", False),
    ("https://gw/v1/a", "https://GW/v1/a", True),
]


@pytest.mark.parametrize(("first", "then", "kept"), REDIRECTS)
async def test_an_id_follows_a_redirect_where_credentials_would(
    library: Library, first: str, then: str, kept: bool
) -> None:
    """Hosts and ports that a test cannot have: the library's own transport for tests answers."""
    seen: list[tuple[str, str | None]] = []

    def answer(request: Any) -> Any:
        seen.append((request.headers.get("authorization"), request.headers.get("x-session-id")))
        return (
            library.module.Response(307, headers={"location": then}) if len(seen) == 1 else library.module.Response(200)
        )

    original = library.client(transport=library.module.MockTransport(answer), follow_redirects=True)
    await library.turn(Conversation("s").bind(original), first, headers={"authorization": "s"})
    assert seen == [("s", "s"), ("s", "s") if kept else (None, None)]


async def test_a_redirect_followed_by_hand_takes_no_id_to_another_origin(
    gateway: Gateway, other: Gateway, library: Library
) -> None:
    gateway.redirect = f"{other.url}/chat/completions"
    client = Conversation("s").bind(library.client(base_url=gateway.url))
    moved = await library.turn(client, "moved")
    await library.do(client.send, moved.next_request)
    assert other.sessions == [None]


async def test_the_id_of_a_streamed_answer_is_known_at_its_headers(gateway: Gateway, library: Library) -> None:
    conversation = Conversation()
    client = conversation.bind(library.client(base_url=gateway.url))
    request = client.build_request("POST", "chat/completions", json={"stream": True})
    answer = await library.do(client.send, request, stream=True)
    assert conversation.id == "issued-1"
    assert not gateway.go_on.is_set()
    gateway.go_on.set()
    body = await library.do(answer.aread if library.is_async else answer.read)
    assert body.endswith(b"data: [DONE]\n\n")


async def test_closing_a_bound_client_leaves_the_connections_open(gateway: Gateway, library: Library) -> None:
    original = library.client(base_url=gateway.url)
    bound = Conversation().bind(original)
    await library.turn(bound)
    await library.close(bound)
    assert not original.is_closed
    await library.turn(Conversation().bind(original))
    assert len({seen.port for seen in gateway.seen}) == 1


async def test_a_bound_client_as_a_context_leaves_the_original_open(gateway: Gateway, library: Library) -> None:
    original = library.client(base_url=gateway.url)
    if library.is_async:
        async with Conversation("s").bind(original) as bound:
            await library.turn(bound)
    else:
        with Conversation("s").bind(original) as bound:
            await library.turn(bound)
    assert not original.is_closed
    assert gateway.sessions == ["s"]


async def test_after_the_original_is_closed_a_bound_client_says_so(gateway: Gateway, library: Library) -> None:
    original = library.client(base_url=gateway.url)
    bound = Conversation().bind(original)
    await library.close(original)
    with pytest.raises(RuntimeError, match="bound to has been closed"):
        await library.turn(bound)
    assert gateway.seen == []


async def test_close_tells_the_gateway_and_forgets_the_id(gateway: Gateway, library: Library) -> None:
    conversation, client = Conversation("s"), library.client(base_url=gateway.url)
    await library.say_goodbye(conversation, client)
    [seen] = gateway.seen
    assert (seen.method, seen.target, seen.session) == ("GET", "/v1/models", "s")
    assert seen.headers["x-session-close"] == "true"
    assert conversation.id is None
    await library.turn(conversation.bind(client))
    assert "x-session-close" not in gateway.seen[-1].headers
    assert conversation.id == "issued-1"


async def test_close_without_a_session_sends_nothing(gateway: Gateway, library: Library) -> None:
    await library.say_goodbye(Conversation(), library.client(base_url=gateway.url))
    assert gateway.seen == []


async def test_a_close_that_failed_says_so_and_can_be_tried_again(gateway: Gateway, library: Library) -> None:
    conversation, client = Conversation("s"), library.client(base_url=gateway.url)
    gateway.fails = [503]
    with pytest.raises(library.module.HTTPStatusError):
        await library.say_goodbye(conversation, client)
    assert conversation.id == "s"
    await library.say_goodbye(conversation, client)
    assert gateway.sessions == ["s", "s"]
    assert conversation.id is None


async def test_the_last_turn_may_close(gateway: Gateway, library: Library) -> None:
    conversation = Conversation("s")
    client = conversation.bind(library.client(base_url=gateway.url))
    await library.turn(client, headers={"x-session-close": "true"})
    assert conversation.id is None
    await library.turn(client)
    assert gateway.sessions == ["s", None]


async def test_a_close_in_the_wrong_manner_is_refused(gateway: Gateway, library: Library) -> None:
    conversation, client = Conversation("s"), library.client(base_url=gateway.url)
    with pytest.raises(TypeError, match="closes a conversation by"):
        await library.opposite.say_goodbye(conversation, client)
    assert gateway.seen == []
    assert conversation.id == "s"


@pytest.mark.parametrize("client", [None, "http://127.0.0.1", {}, object()])
def test_what_is_no_client_is_refused(client: object) -> None:
    with pytest.raises(TypeError, match="expected a client of httpx, httpx2 or openai"):
        Conversation().bind(client)
