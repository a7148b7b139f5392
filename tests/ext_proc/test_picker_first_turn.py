"""The first turn of a session that the client named is placed by its prompt; later ones by their headers."""

from __future__ import annotations

import json

import pytest
from picking import CHAT, FILE, POOL, REPLICAS, Picking, home, other_than

from homing.core.config import parse
from homing.core.placement.decision import Reason
from homing.core.prefix.index import Index
from homing.ext_proc.events import BodyAnswer, HeadersAnswer, RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange

SYSTEM = "You keep the books of a large house. " * 1000  # some 9,000 tokens
KEEP_OFF = "placement: {read_first: false}, "


def body(user: str) -> bytes:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    return json.dumps({"model": "served", "messages": messages}).encode()


def configured(picking: Picking, text: str = FILE) -> Picking:
    picking.picker.placer.prefixes = Index()
    picking.picker.configure(parse(text, "homing.yaml"))
    return picking


@pytest.fixture
def picking() -> Picking:
    return configured(Picking())


def headers(session: bytes, size: int, path: bytes = CHAT) -> RequestHeadersReceived:
    named = {"x-session-id": session, "x-homing-key": b"/" + session, "x-homing-given": session}
    return RequestHeadersReceived({**named, ":path": path, "content-length": b"%d" % size}, "served")


def first(picking: Picking, session: bytes, sent: bytes) -> dict[str, bytes]:
    """What Envoy is told of a first turn, whose body it is asked for. The request goes on."""
    exchange = Exchange(picking.picker)
    assert exchange.receive(headers(session, len(sent))) == HeadersAnswer((), want_body=True)
    told = exchange.receive(RequestBodyReceived(sent))
    assert isinstance(told, BodyAnswer)
    assert told.body is None
    return dict(told.set_headers)


def place(told: dict[str, bytes]) -> str:
    address = told["x-gateway-destination-endpoint"].decode().split(",")[0]
    return next(r.id for r in REPLICAS if r.address == address)


def test_it_goes_where_its_prompt_is_held_although_the_hash_says_another(picking: Picking):
    one = place(first(picking, b"one", body("What is due?")))
    stranger = next(b"s%d" % i for i in range(99) if home(b"s%d" % i).id != one)
    told = first(picking, stranger, body("And the rent?"))
    assert (place(told), told["x-homing-decision"]) == (one, Reason.PLACED.encode())


def test_without_a_prompt_that_is_held_it_goes_to_its_hash(picking: Picking):
    told = first(picking, b"one", body("What is due?"))
    assert (place(told), told["x-homing-decision"]) == (home(b"one").id, Reason.HASH.encode())


def test_the_next_turn_needs_no_body_and_goes_home(picking: Picking):
    one = place(first(picking, b"one", body("What is due?")))
    answer = Exchange(picking.picker).receive(headers(b"one", 40_000))
    assert isinstance(answer, HeadersAnswer)
    assert not answer.want_body
    assert place(dict(answer.set_headers)) == one


def test_its_slot_is_given_back_once(picking: Picking):
    exchange = Exchange(picking.picker)
    sent = body("What is due?")
    exchange.receive(headers(b"one", len(sent)))
    assert picking.in_flight() == {}
    exchange.receive(RequestBodyReceived(sent))
    assert sum(picking.in_flight().values()) == 1
    exchange.close()
    exchange.close()
    assert sum(picking.in_flight().values()) == 0


def test_a_body_that_is_none_is_placed_by_its_headers(picking: Picking):
    told = first(picking, b"one", b"x" * 5_000)
    assert (place(told), told["x-homing-decision"]) == (home(b"one").id, Reason.HASH.encode())


@pytest.mark.parametrize(
    ("request_", "file"),
    [
        (headers(b"one", 4_095), FILE),
        (headers(b"one", 20_000, b"/v1/embeddings"), FILE),
        (headers(b"01234567-89ab-4def-8123-456789abcdef-2a", 20_000), FILE),  # an id of ours
        (headers(b"one", 20_000), FILE.replace("{p: {", "{p: {" + KEEP_OFF)),
        (headers(b"one", 20_000), FILE + "sessions: {history: false}\n"),
        (headers(b"one", 20_000), FILE.replace("{p: {", "{p: {mode: observe, ")),
    ],
    ids=["short", "no conversation", "issued", "switched off", "no histories", "observed"],
)
def test_others_are_placed_by_their_headers(request_: RequestHeadersReceived, file: str):
    answer = Exchange(configured(Picking(), file).picker).receive(request_)
    assert isinstance(answer, HeadersAnswer)
    assert not answer.want_body


def test_a_session_that_lives_elsewhere_than_its_hash_stays_there(picking: Picking):
    elsewhere = other_than(home(b"one"))
    key = picking.picker.identity.key(headers(b"one", 0).headers)
    picking.picker.placing.remember(POOL.id, key, elsewhere)
    answer = Exchange(picking.picker).receive(headers(b"one", 20_000))
    assert isinstance(answer, HeadersAnswer)
    assert not answer.want_body
    assert place(dict(answer.set_headers)) == elsewhere
