"""Conversations whose headers name no session: known by their bodies."""

from __future__ import annotations

import json

import pytest
from picking import CHAT, FILE, FLEET, REPLICAS, Picking, known, talk, unnamed

from homing.core.config import parse
from homing.core.fleet import HealthChanged
from homing.ext_proc.events import BodyAnswer, RequestBodyReceived, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange


def test_a_conversation_without_an_id_comes_home(recognising: Picking):
    first = unnamed(recognising, talk("u1"))
    assert first["x-homing-decision"] == b"new"
    home = first["x-gateway-destination-endpoint"].split(b",")[0]
    texts = ["u1"]
    for turn in range(20):
        texts += [f"a{turn}", f"u{turn}"]
        recognising.now += 1.0
        told = unnamed(recognising, talk(*texts))
        assert told["x-homing-decision"] == b"history"
        assert told["x-gateway-destination-endpoint"].split(b",")[0] == home
    assert recognising.picker.counts.keyless == {"first": 1, "found": 20}
    assert recognising.in_flight() == {}


def test_a_header_that_asks_for_nothing_takes_the_long_way_to_the_same_answer(recognising: Picking):
    unnamed(recognising, talk("u1"))
    short, long = (unnamed(recognising, talk("u1", "a1", "u2"), **more) for more in ({}, {"x-session-close": b"false"}))
    del short["x-homing-ref"], long["x-homing-ref"]  # with what waits there
    assert short == long
    assert recognising.picker.counts.keyless == {"first": 1, "found": 2}


def test_the_id_it_gets_back_leads_home_too(recognising: Picking):
    unnamed(recognising, talk("u1"))
    told = unnamed(recognising, talk("u1", "a1", "u2"))
    given = dict(recognising.route(told["x-session-id"]).set_headers)
    assert given["x-gateway-destination-endpoint"] == told["x-gateway-destination-endpoint"]


def test_turns_without_an_id_do_not_fill_the_table_of_homes(recognising: Picking):
    unnamed(recognising, talk("u1"))
    for _ in range(5):
        unnamed(recognising, talk("u1", "a1", "u2"))
    assert known(recognising) == 1


def test_identical_first_messages_are_spread_by_load(recognising: Picking):
    exchanges = []
    for _ in range(30):
        exchange = Exchange(recognising.picker)
        headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": CHAT}
        exchange.receive(RequestHeadersReceived(headers, "served"))
        exchange.receive(RequestBodyReceived(talk("hello")))
        exchanges.append(exchange)
    assert set(recognising.in_flight().values()) == {10}
    for exchange in exchanges:
        exchange.close()
    assert recognising.in_flight() == {}


def test_a_home_that_is_dead_is_left(recognising: Picking):
    first = unnamed(recognising, talk("u1"))["x-gateway-destination-endpoint"].split(b",")[0].decode()
    dead = next(r.id for r in REPLICAS if r.address == first)
    recognising.picker.adopt(FLEET.apply(HealthChanged("p", dead, healthy=False)))
    told = unnamed(recognising, talk("u1", "a1", "u2"))
    assert told["x-homing-decision"] == b"new"
    assert told["x-gateway-destination-endpoint"].split(b",")[0].decode() != first


def test_a_member_of_the_body_names_the_session(recognising: Picking):
    body = json.dumps({"messages": [], "session_id": "mine"}).encode()
    first, second = unnamed(recognising, body), unnamed(recognising, body)
    assert (first["x-homing-decision"], second["x-homing-decision"]) == (b"hash", b"home")
    assert first["x-session-id"] == b"mine"
    assert first["x-homing-key"] == b"/mine"
    assert dict(recognising.route(b"mine").set_headers)["x-homing-decision"] == b"home"


def test_an_alias_is_rewritten_and_the_conversation_placed_in_one_answer(recognising: Picking):
    exchange = Exchange(recognising.picker)
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": CHAT}
    exchange.receive(RequestHeadersReceived(headers, "alias"))
    answer = exchange.receive(RequestBodyReceived(b'{"model":"alias","messages":[]}'))
    assert isinstance(answer, BodyAnswer)
    assert answer.body == b'{"model":"served","messages":[]}'
    assert dict(answer.set_headers)["x-homing-decision"] == b"new"


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"messages":3}'])
def test_a_body_without_a_conversation_is_a_new_session(recognising: Picking, body: bytes):
    assert unnamed(recognising, body)["x-homing-decision"] == b"new"


@pytest.mark.parametrize(
    ("path", "has_body", "history"),
    [(b"/v1/embeddings", True, True), (CHAT, False, True), (CHAT, True, False), (b"/tokenize", True, True)],
)
def test_bodies_without_a_conversation_are_not_asked_for(
    recognising: Picking, path: bytes, has_body: bool, history: bool
):
    recognising.picker.configure(parse(FILE + f"sessions: {{history: {str(history).lower()}}}\n", "f"))
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": path}
    routed = recognising.picker.route(RequestHeadersReceived(headers, "served", has_body=has_body))
    assert not routed.want_body


def test_a_client_that_leaves_before_its_body_came_holds_no_slot(recognising: Picking):
    exchange = Exchange(recognising.picker)
    headers = {"x-session-id": b"uuid", "x-homing-key": b"/uuid", ":path": CHAT}
    exchange.receive(RequestHeadersReceived(headers, "served"))
    exchange.close()
    assert recognising.in_flight() == {}
