"""The Responses API of real engines: a conversation goes on at the one that has made its response."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from real_vllm.engines import MODEL, Engine
from real_vllm.gateway import Gateway

pytestmark = pytest.mark.vllm

SAID = "My boat is called Marigold."
ASKED = ("And what colour is she?", "Since when?", "Who painted her?")


@pytest.fixture
def client(homing: Gateway) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=homing.url, api_key="none", http_client=http, max_retries=0) as made:
        yield made


def test_a_conversation_goes_on_where_its_response_is_kept(client: openai.OpenAI, fleet: dict[str, Engine]) -> None:
    """Each turn says but one line; what was said before comes from the engine's store."""
    raw = client.responses.with_raw_response.create(model=MODEL, input=SAID, max_output_tokens=8)
    kept_at, response = raw.headers["x-homing-replica"], raw.parse()
    messages = [{"role": "user", "content": SAID}]
    for asked in ASKED:
        messages += [{"role": "assistant", "content": response.output_text}, {"role": "user", "content": asked}]
        raw = client.responses.with_raw_response.create(
            model=MODEL, input=asked, previous_response_id=response.id, max_output_tokens=8
        )
        assert (raw.headers["x-homing-replica"], raw.headers["x-homing-decision"]) == (kept_at, "response")
        response = raw.parse()
        assert response.usage is not None
        assert response.usage.input_tokens == len(fleet[kept_at].tokens(messages))
    for name, engine in fleet.items():  # no other engine could have gone on
        assert engine.http.get(f"/v1/responses/{response.id}").status_code == (200 if name == kept_at else 404)
    asked_for = client.responses.with_raw_response.retrieve(response.id)
    assert (asked_for.headers["x-homing-replica"], asked_for.parse().id) == (kept_at, response.id)
