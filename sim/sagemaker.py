"""SageMaker's stateful sessions, as an engine keeps them behind `POST /invocations`.

Source: model_hosting_container_standards, sagemaker/sessions (vLLM's own), with its default of 20 minutes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from homing.sim.chat import chat
from homing.sim.completions import completions
from homing.sim.errors import BadRequestError
from homing.sim.replica import Replica

SESSION = "x-amzn-sagemaker-session-id"
NEW_SESSION = "NEW_SESSION"
TTL_S = 1200.0


class _Body(msgspec.Struct):
    requestType: str | None = None  # noqa: N815 (SageMaker's name)
    messages: msgspec.Raw = msgspec.Raw(b"")


def invocations(replica: Replica, body: bytes, headers: Mapping[str, str]) -> ASGIApp:
    """A session's begin or end, or a request for the API that its members tell. Raises RequestError."""
    try:
        parsed = msgspec.json.decode(body, type=_Body)
    except msgspec.DecodeError as error:
        raise BadRequestError(f"JSON decode error: {error}") from error
    session = headers.get(SESSION)
    if parsed.requestType == NEW_SESSION:
        return _begun(replica)
    if session and session != NEW_SESSION and not _known(replica, session):
        raise BadRequestError(f"Bad request: session not found: {session}")
    if parsed.requestType == "CLOSE":
        return _closed(replica, session or "")
    if parsed.requestType is not None:
        raise BadRequestError("Input should be 'NEW_SESSION' or 'CLOSE'")
    return (chat if parsed.messages else completions)(replica, body, headers)


def _begun(replica: Replica) -> Response:
    session, ends = str(uuid.uuid4()), time.time() + TTL_S
    replica.engine_sessions[session] = ends
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    told = {"X-Amzn-SageMaker-New-Session-Id": f"{session}; Expires={expires}"}
    return Response(f"Session {session} created", headers=told)


def _closed(replica: Replica, session: str) -> Response:
    if replica.engine_sessions.pop(session, None) is None:
        failed = f"Failed to close session: invalid session_id: {session}"
        return Response(failed, HTTPStatus.FAILED_DEPENDENCY)
    return Response(f"Session {session} closed", headers={"X-Amzn-SageMaker-Closed-Session-Id": session})


def _known(replica: Replica, session: str) -> bool:
    ends = replica.engine_sessions.get(session)
    if ends is not None and ends < time.time():
        del replica.engine_sessions[session]
    return ends is not None
