"""One request in, one answer out, through real Envoy with a picker: as data."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from e2e.stack import StaticStack, until

pytestmark = pytest.mark.e2e

JSON = {"content-type": "application/json"}
USER = [{"role": "user", "content": "hello"}]
KNOWN = "Known models: model-a, chat, model-b."


def chat(**members: Any) -> bytes:
    """A chat request with its members in the order given."""
    return json.dumps(members).encode()


FORM_TYPE = (("content-type", "multipart/form-data; boundary=b"),)
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nmodel-b\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n{"x":1}\r\n--b--\r\n'
)


@dataclass(frozen=True)
class Case:
    name: str
    body: bytes = chat(model="model-a", messages=USER)
    headers: tuple[tuple[str, str | bytes], ...] = tuple(JSON.items())
    path: str = "/v1/chat/completions"
    status: int = 200
    pool: str | None = None  # the replica that served belongs to it
    served: str | None = None  # the model that the engine says it served
    error: str | None = None  # text of OpenAI's error.message
    decisions: tuple[str, ...] = ()  # one of these
    session: str | None = None  # x-session-id in the answer
    extra: dict[str, Any] = field(default_factory=dict)


def with_headers(*pairs: tuple[str, str | bytes]) -> tuple[tuple[str, str | bytes], ...]:
    return (*JSON.items(), *pairs)


LONG = "s" * 20_000
MIDDLE = chat(messages=USER, model="model-b", temperature=0)

CASES = [
    Case("model first", chat(model="model-a", messages=USER), pool="pool-a", served="model-a"),
    Case("model last", chat(messages=USER, model="model-b"), pool="pool-b", served="model-b"),
    Case("model in the middle", MIDDLE, pool="pool-b", served="model-b"),
    Case("model in the middle, charset", MIDDLE, (("content-type", "application/json; charset=utf-8"),), pool="pool-b"),
    Case("spaces and line ends", b'\r\n { "messages" : [{"role":"user","content":"x"}],\n "model" :\t"model-b" }\n', pool="pool-b"),
    Case("gzip", gzip.compress(MIDDLE), with_headers(("content-encoding", "gzip")), pool="pool-b", served="model-b"),
    Case("escaped model name", b'{"model":"model\\u002da","messages":[{"role":"user","content":"x"}]}', pool="pool-a"),
    Case("nested model keys", chat(metadata={"model": "model-b"}, model="model-a", messages=USER, n=1), pool="pool-a"),
    Case("duplicate keys, the last wins", b'{"model":"model-a","messages":[{"role":"user","content":"x"}],"model":"model-b"}', pool="pool-b"),
    Case("a prompt that quotes a body", chat(model="model-a", messages=[{"role": "user", "content": ',"model":"model-b"}'}]), pool="pool-a"),
    Case("alias first", chat(model="chat", messages=USER), pool="pool-a", served="model-a"),
    Case("alias last", chat(messages=USER, model="chat"), pool="pool-a", served="model-a"),
    Case("alias alone", b'{"model": "chat"}', path="/v1/completions", status=400, pool="pool-a"),
    Case("alias in the middle, rewritten by the picker", chat(messages=USER, model="chat", n=1), pool="pool-a", served="model-a"),
    Case("alias in a hint", chat(messages=USER, model="chat"), with_headers(("x-homing-model", "chat")), pool="pool-a", served="model-a"),
    Case("the hint spares the parse", MIDDLE, with_headers(("x-homing-model", "model-b")), pool="pool-b"),
    Case("a hint that the body contradicts", chat(model="model-b", messages=USER), with_headers(("x-homing-model", "chat")), status=400, error="The header x-homing-model says chat, the body says model-b."),
    Case("unknown model", chat(model="nope", messages=USER), status=404, error=f"The model nope does not exist. {KNOWN}"),
    Case("a model that is not UTF-8", b'{"model":"m\xff","messages":[]}', status=404, error=f"The model m? does not exist. {KNOWN}"),
    Case("unknown model in the middle", chat(messages=USER, model="nope", n=1), status=404, error=f"The model nope does not exist. {KNOWN}"),
    Case("no model, several pools", chat(messages=USER), status=400, error="The request names no model, and there are several: model-a, chat, model-b."),
    Case("malformed JSON", b'{"messages":[}, "model":"model-a", "n":1}', status=400, error="The body is not valid JSON."),
    Case("malformed after the model: the engine says so", b'{"model":"model-a", "messages":[}', status=400, pool="pool-a"),
    Case("not JSON at all", b"hello", status=400, error="The body is not valid JSON."),
    Case("the engine's own error", chat(model="model-a"), status=400, pool="pool-a"),
    Case("no session: an id that fits", decisions=("new",)),
    Case("NEW_SESSION", headers=with_headers(("x-session-id", "NEW_SESSION")), decisions=("new",)),
    Case("new_session in small letters", headers=with_headers(("x-session-id", "new_session")), decisions=("new",)),
    Case("empty session id", headers=with_headers(("x-session-id", "")), decisions=("new",)),
    Case("empty id, then another header's", headers=with_headers(("x-session-id", ""), ("x-claude-code-session-id", "c1")), decisions=("hash", "placed", "home"), session="c1"),
    Case("SageMaker's header", headers=with_headers(("x-amzn-sagemaker-session-id", "sm1")), decisions=("hash", "placed", "home"), session="sm1"),
    Case("a subagent is a session of its own", headers=with_headers(("x-claude-code-session-id", "c1"), ("x-claude-code-agent-id", "a1")), decisions=("hash", "placed", "home"), session="c1/a1"),
    Case("an agent without a session", headers=with_headers(("x-claude-code-agent-id", "a1")), decisions=("new",)),
    Case("an id in the body", chat(model="model-a", messages=USER, session_id="in-body"), decisions=("hash", "placed", "home"), session="in-body", pool="pool-a"),
    Case("a conversation in the body", chat(conversation={"id": "conv_1"}, model="model-a", messages=USER), decisions=("hash", "placed", "home"), session="conv_1"),
    Case("a header counts before the body", chat(model="model-a", messages=USER, session_id="in-body"), with_headers(("x-session-id", "in-header")), decisions=("hash", "placed", "home"), session="in-header"),
    Case("Codex's header", headers=with_headers(("session_id", "codex1")), decisions=("hash", "placed", "home"), session="codex1"),
    Case("Dynamo's header", headers=with_headers(("x-dynamo-session-id", "dyn1")), decisions=("hash", "placed", "home"), session="dyn1"),
    Case("an id of one request is no session", headers=with_headers(("x-request-id", "r1")), decisions=("new",)),
    Case("the first header wins", headers=with_headers(("x-claude-code-session-id", "c2"), ("x-session-id", "s2")), decisions=("hash", "placed", "home"), session="s2"),
    Case("duplicated id: the first", headers=with_headers(("x-session-id", "d1"), ("x-session-id", "d2")), decisions=("hash", "placed", "home"), session="d1"),
    Case("20 KB id", headers=with_headers(("x-session-id", LONG)), decisions=("hash", "placed", "home"), session=LONG),
    Case("50 KB id", headers=with_headers(("x-session-id", "t" * 50_000)), decisions=("hash", "placed", "home"), session="t" * 50_000),
    Case("25 KB id in another header", headers=with_headers(("x-dynamo-session-id", "u" * 25_000)), decisions=("hash", "placed", "home")),
    Case("gzip of a text that repeats itself", gzip.compress(chat(model="model-a", messages=[{"role": "user", "content": "hello world " * 100_000}], n=1)), with_headers(("content-encoding", "gzip")), pool="pool-a", served="model-a"),
    Case("a hint given twice: the first", headers=with_headers(("x-homing-model", "model-a"), ("x-homing-model", "nope")), pool="pool-a"),
    Case("id that is not ASCII", headers=with_headers(("x-session-id", "käse-\N{SNOWMAN}".encode())), decisions=("hash", "placed", "home")),
    Case("id that is not UTF-8", headers=with_headers(("x-session-id", b"\xff\xfe")), decisions=("hash", "placed", "home")),
    Case("a replica named by the client", headers=with_headers(("x-gateway-destination-endpoint", "127.0.0.1:1")), decisions=("new",), pool="pool-a"),
    Case("our headers from a client", headers=with_headers(("x-homing-key", "/k"), ("x-homing-given", "k"), ("x-homing-decision", "home"), ("x-homing-odd", "long"), ("x-homing-parse", "1"), ("x-homing-anything", "x")), decisions=("new",), pool="pool-a"),
    Case("a form with the model before the file", FORM, FORM_TYPE, path="/v1/audio/transcriptions", status=404, pool="pool-b"),
    Case("a form without a model", FORM.replace(b"model", b"other"), FORM_TYPE, path="/v1/audio/transcriptions", status=400, error="The request names no model, and there are several: model-a, chat, model-b."),
    Case("JSON that does not say so", MIDDLE, (("content-type", "text/plain"),), status=400, error="The request names no model, and there are several: model-a, chat, model-b."),
    Case("JSON without a type", MIDDLE, (), pool="pool-b"),
    Case("no body at all, several pools", b"", status=400, error="The request names no model, and there are several: model-a, chat, model-b."),
    Case("legacy completions", b'{"model":"model-a","prompt":"hello"}', path="/v1/completions", pool="pool-a"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_request(two_pools: StaticStack, case: Case) -> None:
    headers = [(k.encode(), v if isinstance(v, bytes) else v.encode()) for k, v in case.headers]
    before = two_pools.fail_opens()
    answer = httpx.post(two_pools.url + case.path, content=case.body, headers=headers, timeout=10, trust_env=False)
    assert answer.status_code == case.status, answer.text
    assert two_pools.fail_opens() == before
    assert answer.headers.get_list("x-session-id"), "an id comes back always"
    if case.pool is not None:
        assert answer.headers["x-homing-replica"].startswith(case.pool)
    if case.served is not None:
        assert answer.json()["model"] == case.served
    if case.error is not None:
        error = answer.json()["error"]
        assert error["message"] == case.error
        assert error["code"] == case.status
        assert error["type"]
    if case.decisions:
        assert answer.headers["x-homing-decision"] in case.decisions
    if case.session is not None:
        assert answer.headers["x-session-id"] == case.session


def test_models_are_listed_by_envoy_alone(two_pools: StaticStack) -> None:
    listed = httpx.get(f"{two_pools.url}/v1/models", trust_env=False).json()
    assert [model["id"] for model in listed["data"]] == ["model-a", "chat", "model-b"]


def test_one_pool_takes_requests_that_name_no_model(one_pool: StaticStack) -> None:
    answer = httpx.post(f"{one_pool.url}/v1/chat/completions", json={"messages": USER}, trust_env=False)
    assert answer.status_code == 200
    assert answer.json()["model"] == "only-model"


def test_one_pool_takes_forms_and_other_paths(one_pool: StaticStack) -> None:
    form = httpx.post(f"{one_pool.url}/v1/audio/transcriptions", files={"file": b"x"}, trust_env=False)
    assert (form.status_code, form.headers["x-homing-replica"][:5]) == (404, "only-")  # the engine's own answer
    assert httpx.get(f"{one_pool.url}/health", trust_env=False).status_code == 200


def test_one_pool_refuses_an_unknown_model_by_name(one_pool: StaticStack) -> None:
    body = {"model": "nope", "messages": USER}
    answer = httpx.post(f"{one_pool.url}/v1/chat/completions", json=body, trust_env=False)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "The model nope does not exist. Known models: only-model."


def test_odd_ids_are_counted(two_pools: StaticStack) -> None:
    def counted() -> dict[str, float]:
        kinds = ("long", "duplicate", "empty", "non_ascii")
        return {kind: two_pools.metric("homing_odd_session_ids_total", kind=kind) for kind in kinds}

    before = counted()
    body = {"model": "model-a", "messages": USER}
    for headers in (
        [("x-session-id", "x" * 257)],
        [("x-session-id", "a"), ("x-session-id", "b")],
        [("x-session-id", "")],
        [(b"x-session-id", "ä".encode())],
    ):
        answer = httpx.post(f"{two_pools.url}/v1/chat/completions", json=body, headers=headers, trust_env=False)
        assert answer.status_code == 200
    assert {kind: n - before[kind] for kind, n in counted().items()} == dict.fromkeys(before, 1)


def test_a_closed_session_is_forgotten(two_pools: StaticStack) -> None:
    def sessions() -> float:
        return two_pools.metric("homing_sessions")

    body, session = {"model": "model-a", "messages": USER}, {"x-session-id": "to-be-closed"}
    before = sessions()
    for headers, known in (
        (session, 1),
        (session | {"x-session-close": "true"}, 0),
        (session, 1),
    ):
        answer = httpx.post(f"{two_pools.url}/v1/chat/completions", json=body, headers=headers, trust_env=False)
        assert answer.status_code == 200
        until(lambda known=known: sessions() == before + known, 5, "the session to be known or forgotten")
    httpx.get(f"{two_pools.url}/v1/models", headers=session | {"x-session-close": "true"}, trust_env=False)
    until(lambda: sessions() == before, 5, "the session to be forgotten")


AWS_ID = r"[a-zA-Z0-9](-*[a-zA-Z0-9])*"  # from the API's model, as is the form of the header


def new_session_of(answer: httpx.Response) -> str:
    announced = re.fullmatch(
        rf"({AWS_ID}); Expires=(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ)", answer.headers["x-amzn-sagemaker-new-session-id"]
    )
    assert announced is not None
    ends = datetime.fromisoformat(announced[3])
    assert 1700 < (ends - datetime.now(UTC)).total_seconds() <= 1800
    return announced[1]


def invoke(stack: StaticStack, body: dict[str, Any], session: str, path: str = "/invocations") -> httpx.Response:
    headers = {"X-Amzn-SageMaker-Session-Id": session} if session else {}
    return httpx.post(stack.url + path, json=body, headers=headers, trust_env=False)


def test_sagemakers_session_from_its_request_to_its_close(two_pools: StaticStack) -> None:
    begun = invoke(two_pools, {"requestType": "NEW_SESSION"}, "NEW_SESSION")
    assert (begun.status_code, begun.content) == (200, b"")
    session = new_session_of(begun)
    body = {"model": "model-a", "messages": USER}
    turns = [invoke(two_pools, body, session, "/v1/chat/completions") for _ in range(5)]
    assert [turn.status_code for turn in turns] == [200] * 5
    assert len({turn.headers["x-homing-replica"] for turn in turns}) == 1
    assert not any("x-amzn-sagemaker-new-session-id" in turn.headers for turn in turns)
    known = two_pools.metric("homing_sessions")
    closed = invoke(two_pools, {"requestType": "CLOSE"}, session)
    assert closed.status_code == 200
    assert closed.headers["x-amzn-sagemaker-closed-session-id"] == session
    until(lambda: two_pools.metric("homing_sessions") == known - 1, 5, "the session to be forgotten")


def test_sagemakers_header_begins_a_session_with_a_turn(two_pools: StaticStack) -> None:
    body = {"model": "model-a", "messages": USER}
    first = invoke(two_pools, body, "NEW_SESSION", "/v1/chat/completions")
    session = new_session_of(first)
    assert first.headers["x-session-id"] == session
    again = invoke(two_pools, body, session, "/v1/chat/completions")
    assert again.headers["x-homing-decision"] == "home"
    assert again.headers["x-homing-replica"] == first.headers["x-homing-replica"]


def test_sagemakers_close_that_names_no_session(two_pools: StaticStack) -> None:
    for session in ("", "NEW_SESSION"):
        answer = invoke(two_pools, {"requestType": "CLOSE"}, session)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "The request closes a session and names none."


@pytest.mark.parametrize(
    "body", [{"requestType": "OTHER"}, {"requestType": "CLOSE", "model": "model-a"}, {"requestType": 1}]
)
def test_other_requests_with_a_request_type_are_nothing_special(two_pools: StaticStack, body: dict[str, Any]) -> None:
    answer = invoke(two_pools, body, "s")
    assert "x-amzn-sagemaker-closed-session-id" not in answer.headers
    assert answer.status_code == 400  # the engine's, to a session that it does not know; no model is named
