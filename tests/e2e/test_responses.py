"""The Responses API through real Envoy, with the real openai client: a response is found where it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from e2e.gateways import KINDS, Gateway, gateway
from e2e.stack import SimulatedPool, StaticStack, until

pytestmark = pytest.mark.e2e

POOLS = (SimulatedPool("pool-a", "model-a", 4), SimulatedPool("pool-b", "model-b", 3, hash="maglev"))
TENANTS = {"tenants": {"header": "x-tenant", "trusted": True}}


@pytest.fixture(scope="module", params=KINDS)
def stack(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Gateway]:
    with gateway(request.param, short_directory / "responses", POOLS, TENANTS) as started:
        yield started


@pytest.fixture
def client(stack: Gateway) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", http_client=http, max_retries=0) as made:
        yield made


def created(client: openai.OpenAI, model: str = "model-a", **given: object) -> tuple[str, httpx.Headers]:
    """A response's id and the headers of its answer."""
    raw = client.responses.with_raw_response.create(model=model, input="hello", **given)  # type: ignore[call-overload]
    return raw.parse().id, raw.headers


@pytest.mark.parametrize("model", ["model-a", "model-b"])
def test_the_next_turn_goes_where_the_response_is_kept(client: openai.OpenAI, model: str) -> None:
    """Not the session's id, nor the history leads there: each turn says but one word."""
    previous, headers = created(client, model)
    kept_at = headers["x-homing-replica"]
    for _ in range(5):
        previous, headers = created(client, model, previous_response_id=previous)
        assert (headers["x-homing-replica"], headers["x-homing-decision"]) == (kept_at, "response")


def test_a_streamed_response_is_known_before_its_stream_has_ended(stack: Gateway, client: openai.OpenAI) -> None:
    """An agent may go on as soon as it has the id."""
    with client.responses.create(model="model-a", input="hello", stream=True, max_output_tokens=200) as stream:
        kept_at = stream.response.headers["x-homing-replica"]
        first = next(iter(stream))
        assert first.type == "response.created"
        if isinstance(stack, StaticStack):  # NGINX tells the picker when the answer has ended
            asked = httpx.get(f"{client.base_url}responses/{first.response.id}", trust_env=False)
            assert asked.headers["x-homing-replica"] == kept_at
            assert asked.headers["x-homing-decision"] == "response"
        types = [event.type for event in stream]
    assert types[-1] == "response.completed", "the rest of the stream passes untouched"
    _, headers = created(client, previous_response_id=first.response.id)
    assert headers["x-homing-replica"] == kept_at


@pytest.mark.parametrize("model", ["model-a", "model-b"])
def test_a_response_is_asked_for_by_its_id_alone(client: openai.OpenAI, model: str) -> None:
    """No model in the request, and two pools."""
    response_id, headers = created(client, model)
    kept_at = headers["x-homing-replica"]
    retrieved = client.responses.with_raw_response.retrieve(response_id)
    assert retrieved.parse().id == response_id
    assert retrieved.headers["x-homing-replica"] == kept_at
    with pytest.raises(openai.APIStatusError) as deleting:  # vLLM has no such method
        client.responses.delete(response_id)
    assert (deleting.value.status_code, deleting.value.response.headers["x-homing-replica"]) == (405, kept_at)
    for method, path in (("POST", "/cancel"), ("GET", "/input_items?limit=3")):
        asked = httpx.request(method, f"{client.base_url}responses/{response_id}{path}", trust_env=False)
        assert asked.headers["x-homing-replica"] == kept_at


def test_a_session_moves_to_where_its_response_is_kept(client: openai.OpenAI) -> None:
    previous, headers = created(client)
    kept_at = headers["x-homing-replica"]
    for number in range(4):
        session = {"x-session-id": f"chosen-{number}"}
        _, headers = created(client, previous_response_id=previous, extra_headers=session)
        assert headers["x-homing-replica"] == kept_at
        assert headers["x-session-id"] == session["x-session-id"]
        _, headers = created(client, extra_headers=session)
        assert (headers["x-homing-replica"], headers["x-homing-decision"]) == (kept_at, "home")


def test_an_unknown_id_gets_the_engines_own_answer(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Response with id 'resp_none' not found"):
        client.responses.retrieve("resp_none")
    with pytest.raises(openai.NotFoundError, match="Response with id 'resp_none' not found"):
        created(client, previous_response_id="resp_none")


def test_a_response_of_another_tenant_is_unknown(client: openai.OpenAI) -> None:
    """It may be at the same replica by chance, and the engine would answer anybody: no engine is asked."""
    ours, theirs = {"x-tenant": "ours"}, {"x-tenant": "theirs"}
    response_id, _ = created(client, extra_headers=ours)
    for headers, known in ((ours, True), (theirs, False), ({}, False)):
        asked = httpx.get(f"{client.base_url}responses/{response_id}", headers=headers, trust_env=False)
        body = {"model": "model-a", "input": "x", "previous_response_id": response_id}
        gone_on = httpx.post(f"{client.base_url}responses", json=body, headers=headers, trust_env=False)
        for answer in (asked, gone_on):
            assert answer.status_code == (200 if known else 404)
            if not known:
                assert answer.json()["error"]["message"] == f"Response with id '{response_id}' not found."
                assert "x-homing-replica" not in answer.headers


def test_a_response_that_is_not_kept_is_not_learned(stack: Gateway, client: openai.OpenAI) -> None:
    def learned() -> float:
        return stack.metric("homing_learned_total", pool="pool-a")

    before = learned()
    created(client, store=False)
    assert learned() == before
    created(client)
    assert learned() == before + 1


def test_a_client_cannot_choose_the_pool(client: openai.OpenAI) -> None:
    headers = {"x-homing-pool": "pool-b", "x-homing-learn": "response:"}
    asked = httpx.get(f"{client.base_url}elsewhere", headers=headers, trust_env=False)
    assert asked.status_code == 400
    assert "names no model" in asked.json()["error"]["message"]


def test_nothing_fails_open_and_no_slot_is_left(stack: Gateway, client: openai.OpenAI) -> None:
    before = stack.fail_opens()
    for stream in (False, True):
        body = {"model": "model-a", "input": "x", "stream": stream}
        answers = [httpx.post(f"{client.base_url}responses", json=body, trust_env=False) for _ in range(20)]
        assert {answer.status_code for answer in answers} == {200}
    assert stack.fail_opens() == before
    until(lambda: stack.in_flight() == 0, 5, "no request in flight")
