"""A session that this picker has never seen, and a store may know: read first, then placed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest
from picking import Picking

from homing.core import responses
from homing.core.session import SessionKey
from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
    Event,
    HeadersAnswer,
    Later,
    Reject,
    RequestBodyReceived,
    RequestHeadersReceived,
    SetHeaders,
)
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.identity import NO_SEALS

HOME = "gpu-1"


@dataclass
class FakeStore:
    """Knows one digest; nothing is awaited here, the read is over when the exchange goes on."""

    picking: Picking
    known: bytes
    worth: bool = True
    asked: list[bytes] = field(default_factory=list)

    def __call__(self, digest: bytes) -> Awaitable[object] | None:
        self.asked.append(digest)
        if digest == self.known and self.worth:
            self.picking.picker.placer.homes.put(digest, HOME, self.picking.now)
        return _Over() if self.worth else None


class _Over:
    def __await__(self):
        yield from ()


def digest(session: bytes) -> bytes:
    return SessionKey(b"", session, b"/" + session).digest("p", b"secret")


@pytest.fixture
def store(recognising: Picking) -> FakeStore:
    store = FakeStore(recognising, b"")
    recognising.picker.unread.mine = recognising.picker.unread.anyones = store
    return store


def headers(session: bytes, *, given: bool, path: bytes = b"/v1/chat/completions") -> RequestHeadersReceived:
    named = {":path": path, "x-session-id": session, "x-homing-key": b"/" + session}
    return RequestHeadersReceived(named | ({"x-homing-given": b"1"} if given else {}), "served")


def told(store: FakeStore, *events: Event) -> tuple[list[bool], SetHeaders]:
    """For each event whether something was read first; and the last answer's headers."""
    exchange = Exchange(store.picking.picker)
    waited, answer = [], None
    for event in events:
        answer = exchange.receive(event)
        waited.append(isinstance(answer, Later))
        if isinstance(answer, Later):
            answer = answer.resume()
    exchange.close()
    assert isinstance(answer, HeadersAnswer | BodyAnswer)
    return waited, answer.set_headers


def place(set_headers: SetHeaders) -> tuple[bytes, bytes]:
    """Where it goes, and why."""
    named = dict(set_headers)
    return named["x-homing-ref"].rpartition(b":")[2], named["x-homing-decision"]


def test_a_session_that_the_store_knows_goes_home(store: FakeStore):
    store.known = digest(b"s")
    waited, answer = told(store, headers(b"s", given=True))
    assert (waited, place(answer)) == ([True], (HOME.encode(), b"home"))


def test_one_that_it_does_not_know_goes_by_the_hash_and_is_not_asked_for_again(store: FakeStore):
    assert [told(store, headers(b"s", given=True))[0] for _ in range(2)] == [[True], [False]]
    assert store.asked == [digest(b"s")]


def test_where_it_is_not_worth_asking_nothing_waits(store: FakeStore):
    store.worth = False
    waited, answer = told(store, headers(b"s", given=True))
    assert (waited, place(answer)[1]) == ([False], b"hash")


def test_a_session_that_begins_here_is_not_asked_for(store: FakeStore):
    body = RequestBodyReceived(b'{"messages": [{"role": "user", "content": "hello"}]}')
    waited, answer = told(store, headers(b"u", given=False), body)
    assert (waited, place(answer)[1], store.asked) == ([False, False], b"new", [])


def test_a_session_that_the_body_names_goes_home(store: FakeStore):
    store.known = digest(b"in-body")
    body = RequestBodyReceived(b'{"session_id": "in-body", "messages": []}')
    waited, answer = told(store, headers(b"u", given=False), body)
    assert (waited, place(answer)) == ([False, True], (HOME.encode(), b"home"))


def test_a_response_is_gone_on_from_where_the_store_says_that_it_is(store: FakeStore):
    store.known = responses.key(b"", b"resp_1").digest("p", b"secret")
    body = RequestBodyReceived(json.dumps({"previous_response_id": "resp_1", "input": "go on"}).encode())
    waited, answer = told(store, headers(b"u", given=False, path=b"/v1/responses"), body)
    assert (waited, place(answer)) == ([False, True], (HOME.encode(), b"response"))


@pytest.mark.parametrize("pool", ["p", "q"])
def test_a_response_is_asked_for_by_its_path_in_every_pool(store: FakeStore, pool: str):
    store.known = responses.key(b"", b"resp_1").digest(pool, b"secret")
    request = RequestHeadersReceived({":path": b"/v1/responses/resp_1", "x-session-id": b"u"}, None, None, False)
    assert place(asyncio.run(read_and_told(store, request))) == (HOME.encode(), b"response")


async def read_and_told(store: FakeStore, request: RequestHeadersReceived) -> SetHeaders:
    answer = Exchange(store.picking.picker).receive(request)
    assert isinstance(answer, Later)
    await answer.wait
    told = answer.resume()
    assert isinstance(told, HeadersAnswer)
    return told.set_headers


def test_where_there_are_tenants_it_is_read_too_whether_a_response_is_anothers(recognising: Picking):
    recognising.picker.identity.configure("x-tenant", None, NO_SEALS)
    store = FakeStore(recognising, responses.anyones(b"resp_1").digest("p", b"secret"))
    recognising.picker.unread.anyones = store
    sent = {":path": b"/v1/responses/resp_1", "x-session-id": b"u", "x-tenant": b"evil"}

    async def refused() -> Answer:
        answer = Exchange(recognising.picker).receive(RequestHeadersReceived(sent, None, None, False))
        assert isinstance(answer, Later)
        await answer.wait
        return answer.resume()

    assert asyncio.run(refused()) == Reject(404, "Response with id 'resp_1' not found.")


def test_what_envoy_shares_out_by_is_not_asked_of_siblings(store: FakeStore):
    store.picking.picker.unread.mine = None
    assert told(store, headers(b"s", given=True))[0] == [False]


def test_a_body_that_is_no_object_names_nothing(store: FakeStore):
    for path in (b"/v1/chat/completions", b"/v1/responses"):
        waited, _ = told(store, headers(b"u", given=False, path=path), RequestBodyReceived(b"[1"))
        assert (waited, store.asked) == ([False, False], [])
