"""SageMaker's sessions left to engines that keep them: their turns and their end go to the engine that began them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.gateways import KINDS, Gateway, gateway
from e2e.stack import SimulatedPool, until

pytestmark = pytest.mark.e2e

TURN = {"messages": [{"role": "user", "content": "hello"}]}
NEW, CLOSE = {"requestType": "NEW_SESSION"}, {"requestType": "CLOSE"}


@pytest.fixture(scope="module", params=KINDS)
def stack(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Gateway]:
    pools = (SimulatedPool("only", "only-model", 4),)
    with gateway(request.param, short_directory / "engine", pools, {"sessions": {"sagemaker": "engine"}}) as started:
        yield started


def invoke(stack: Gateway, body: dict[str, object], session: str | None = None, **more: str) -> httpx.Response:
    headers = more if session is None else {"X-Amzn-SageMaker-Session-Id": session, **more}
    return httpx.post(f"{stack.url}/invocations", json=body, headers=headers, trust_env=False)


def begun(stack: Gateway, session: str | None = None) -> tuple[str, str]:
    """The id that an engine gave, and the engine."""
    answer = invoke(stack, NEW, session)
    told = re.fullmatch(r"([0-9a-f-]{36}); Expires=\S+Z", answer.headers["x-amzn-sagemaker-new-session-id"])
    assert answer.status_code == 200
    assert told is not None
    return told[1], answer.headers["x-homing-replica"]


def test_turns_go_to_the_engine_that_began_the_session_until_it_is_closed(stack: Gateway) -> None:
    """An engine that does not know a session refuses its turns with 400: eight sessions on four engines."""
    sessions = [begun(stack, given) for given in (None, "NEW_SESSION") * 4]
    assert len({engine for _, engine in sessions}) > 1, "the hash or one engine alone would explain what follows"
    for session, engine in sessions:
        for _ in range(3):
            turn = invoke(stack, TURN, session)
            assert (turn.status_code, turn.headers["x-homing-replica"]) == (200, engine), turn.text
    for session, engine in sessions:
        closed = invoke(stack, CLOSE, session)
        assert (closed.status_code, closed.headers["x-homing-replica"]) == (200, engine)
        assert closed.headers["x-amzn-sagemaker-closed-session-id"] == session
    assert stack.metric("homing_sessions_closed_total", by="engine") == 8
    assert invoke(stack, TURN, sessions[0][0]).status_code == 400


def test_a_session_that_begins_does_not_go_where_an_old_one_lives(stack: Gateway) -> None:
    old, _ = begun(stack)
    assert len({begun(stack, old)[1] for _ in range(12)}) > 1


def test_an_engines_refusal_passes_and_forgets_nothing(stack: Gateway) -> None:
    session, engine = begun(stack)
    assert invoke(stack, CLOSE, "unknown").status_code == 400
    assert invoke(stack, CLOSE).status_code == 424
    assert invoke(stack, {"requestType": "OTHER"}, session).status_code == 400
    assert invoke(stack, TURN, session).headers["x-homing-replica"] == engine


def test_a_hint_spares_nothing_here(stack: Gateway) -> None:
    answer = invoke(stack, NEW, **{"x-homing-model": "only-model"})
    session = answer.headers["x-amzn-sagemaker-new-session-id"].partition(";")[0]
    for _ in range(4):
        turn = invoke(stack, TURN, session)
        assert turn.headers["x-homing-replica"] == answer.headers["x-homing-replica"]
    until(lambda: stack.in_flight() == 0, 5, "no request in flight")
