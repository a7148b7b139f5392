"""The Responses API's ids: in paths, in requests, in answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core import responses
from homing.core.chat import NotAnObjectError
from homing.core.responses import Asked
from homing.core.session import SessionKey


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (b"/v1/responses/resp_1", b"resp_1"),
        (b"/v1/responses/resp_1?stream=true&starting_after=3", b"resp_1"),
        (b"/v1/responses/resp_1/cancel", b"resp_1"),
        (b"/v1/responses/resp_1/input_items?limit=2", b"resp_1"),
        (b"/qwen/v1/responses/resp_1", b"resp_1"),
        (b"/v1/responses", None),
        (b"/v1/responses/", None),
        (b"/v1/responses/resp_1/other", None),
        (b"/v1/responses/resp_1/", None),
        (b"/v1/responses/a%2Fb", None),
        (b"/v1/responses/" + b"x" * 129, None),
        (b"/v1/chat/completions?next=/v1/responses/", None),
    ],
)
def test_the_id_in_a_path(path: bytes, named: bytes | None):
    assert responses.named_by(path) == named


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({}, Asked()),
        ({"previous_response_id": "resp_1"}, Asked(b"resp_1")),
        ({"previous_response_id": None}, Asked()),
        ({"previous_response_id": 7, "store": None}, Asked()),
        ({"input": {"previous_response_id": "resp_1"}}, Asked()),
        ({"store": False, "previous_response_id": "r\u00e9"}, Asked("r\u00e9".encode(), kept=False)),
        ({"store": True}, Asked()),
    ],
)
def test_what_a_request_asks_for(body: dict[str, object], asked: Asked):
    assert responses.asked(json.dumps(body).encode()) == asked


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a":' * 5000])
def test_a_body_that_is_no_object(body: bytes):
    with pytest.raises(NotAnObjectError):
        responses.asked(body)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b'{"id":"resp_1","object":"response"', b"resp_1"),
        (b'{\n  "id" : "resp_1"', b"resp_1"),
        (b'event: response.created\ndata: {"response":{"id":"resp_1","created_at":1', b"resp_1"),
        (b'{"output":[{"id":"msg_1"}],"id":"resp_1"', b"resp_1"),
        (b'{"id":"resp_1', None),
        (b'{"id":"chatcmpl-1"', None),
        (b"", None),
    ],
)
def test_the_id_at_the_beginning_of_an_answer(head: bytes, found: bytes | None):
    assert responses.id_in(head) == found


@given(st.text())
def test_a_text_never_passes_for_an_id(text: str):
    """Whatever the model or the client wrote, as a value in JSON."""
    for quoted in (text, f'"id":"resp_{text}"', f'{{"id": "resp_1", {text}'):
        assert responses.id_in(json.dumps({"text": quoted}).encode()) is None


def test_a_response_is_nobodys_session():
    key = responses.key(b"acme", b"resp_1")
    digests = {
        key.digest("p", b"secret"),
        responses.key(b"", b"resp_1").digest("p", b"secret"),
        responses.key(b"acme", b"resp_2").digest("p", b"secret"),
        SessionKey(b"acme", b"resp_1", b"acme/resp_1").digest("p", b"secret"),
        key.digest("q", b"secret"),
    }
    assert len(digests) == 5
