"""What only an answer says: the id of a response, or of a session that the engine names.

The picker sets x-homing-learn on requests whose answers tell one; Envoy then shows it the answer, headers first, before
the client gets it. So no next turn, however quick, comes before its id is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from homing.core import responses
from homing.core.fleet import ranked
from homing.core.session import SessionKey
from homing.ext_proc.events import Headers, ResponseHeadersReceived, SetHeaders

LEARN = "x-homing-learn"
RESPONSE = "response"
SESSION = "session"
NEW_SESSION = "x-amzn-sagemaker-new-session-id"
CLOSED_SESSION = "x-amzn-sagemaker-closed-session-id"


class Memory(Protocol):
    """Where what was learned goes."""

    def remember(self, pool_id: str, key: SessionKey, replica_id: str) -> None: ...

    def remember_response(self, pool_id: str, tenant: bytes, response_id: bytes, replica_id: str) -> None: ...

    def forget(self, pool_id: str, key: SessionKey) -> None: ...


def lesson(kind: str, tenant: bytes) -> tuple[str, bytes]:
    """The header that asks for it. The tenant goes along in hexadecimal: the answer does not name it."""
    return LEARN, f"{kind}:{tenant.hex()}".encode()


def at_rank(lesson: SetHeaders, rank: int | None) -> SetHeaders:
    """The same of a request that goes to one of several data-parallel ranks: the answer names the host only."""
    return lesson if rank is None else tuple((name, b"%b:%d" % (value, rank)) for name, value in lesson)


def learn(answer: ResponseHeadersReceived, memory: Memory) -> ResponseLearner | None:
    """What the headers tell goes to `memory`; who hears the body is returned, where that is to tell more."""
    kind, tenant_hex, rank, *_ = f"{answer.learn}::".split(":")
    try:
        tenant = bytes.fromhex(tenant_hex)
        answer = replace(answer, replica=ranked(answer.replica, int(rank) if rank else None))
    except ValueError:  # not from a picker of this version
        return None
    if answer.headers.get(":status") != b"200" or not answer.replica:
        return None
    if kind == SESSION:
        _learn_session(answer, tenant, memory)
    if kind != RESPONSE or answer.headers.get("content-encoding", b"identity") != b"identity":
        return None
    return ResponseLearner(answer, tenant, memory)


def _learn_session(answer: ResponseHeadersReceived, tenant: bytes, memory: Memory) -> None:
    """SageMaker's stateful sessions, kept by the engine: `ID; Expires=...` for a new one."""
    if new := _id(answer.headers, NEW_SESSION):
        memory.remember(answer.cluster, SessionKey(tenant, new, b""), answer.replica)
    if closed := _id(answer.headers, CLOSED_SESSION):
        memory.forget(answer.cluster, SessionKey(tenant, closed, b""))


def _id(headers: Headers, name: str) -> bytes:
    return headers.get(name, b"").partition(b";")[0].strip()


class ResponseLearner:
    """Reads the beginning of an answer until the response's id has come."""

    __slots__ = ("_answer", "_head", "_memory", "_tenant")

    def __init__(self, answer: ResponseHeadersReceived, tenant: bytes, memory: Memory) -> None:
        self._answer = answer
        self._tenant = tenant
        self._memory = memory
        self._head = b""

    def hear(self, piece: bytes) -> bool:
        self._head += piece[: responses.HEAD_BYTES]
        response_id = responses.id_in(self._head)
        if response_id is not None:
            answer = self._answer
            self._memory.remember_response(answer.cluster, self._tenant, response_id, answer.replica)
        return response_id is not None or len(self._head) >= responses.HEAD_BYTES
