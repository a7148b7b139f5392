"""SageMaker's sessions of an engine: statuses and headers as model_hosting_container_standards has them."""

from __future__ import annotations

import re

import httpx
import pytest

TURN = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
NEW, CLOSE = {"requestType": "NEW_SESSION"}, {"requestType": "CLOSE"}


@pytest.fixture
def invoke(quick_sim):
    def invoke(body: dict[str, object], session: str | None = None) -> httpx.Response:
        headers = {} if session is None else {"X-Amzn-SageMaker-Session-Id": session}
        return httpx.post(f"{quick_sim.url}/invocations", json=body, headers=headers, timeout=20)

    return invoke


def test_a_session_from_its_begin_to_its_end(invoke):
    begun = invoke(NEW)
    told = re.fullmatch(
        r"(\S+); Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", begun.headers["x-amzn-sagemaker-new-session-id"]
    )
    assert told is not None
    assert (begun.status_code, begun.text) == (200, f"Session {told[1]} created")
    assert invoke(TURN, told[1]).status_code == 200
    closed = invoke(CLOSE, told[1])
    assert (closed.status_code, closed.headers["x-amzn-sagemaker-closed-session-id"]) == (200, told[1])
    assert invoke(TURN, told[1]).status_code == 400


@pytest.mark.parametrize(
    ("body", "session", "status"),
    [
        (TURN, None, 200),
        (TURN, "NEW_SESSION", 200),
        ({"prompt": "x", "max_tokens": 1}, None, 200),
        (TURN, "unknown", 400),
        (CLOSE, "unknown", 400),
        (CLOSE, None, 424),
        (CLOSE, "NEW_SESSION", 424),
        ({"requestType": "OTHER"}, None, 400),
        ({"requestType": 1}, None, 400),
    ],
)
def test_statuses(invoke, body: dict[str, object], session: str | None, status: int):
    assert invoke(body, session).status_code == status
