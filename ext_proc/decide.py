"""The picker for NGINX: one exchange a request over HTTP, ended by NGINX's access log.

`POST /decide` with the client's headers and, of ours, x-homing-request (NGINX's id of the request), -connection, -pool,
-model, -path, -body-bytes, -given, -key, -auto, -cookie and -learn, and x-session-id. The body is that of the request,
or empty where NGINX keeps it back to spare the copy. Answers 200:

- headers as the exchange sets them, and x-homing-replica, the choice; none where the hash is to decide
- x-homing-body: `wanted` where the body is needed: NGINX asks again, with it
- a body: what is to be sent to the replica instead of the client's
- x-homing-reject: the status by which the request ends here; the body is the message

Times in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from homing.core.placement.decision import Ref
from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
    HeadersAnswer,
    Later,
    Reject,
    RequestBodyReceived,
    RequestHeadersReceived,
    SetHeaders,
)
from homing.ext_proc.exchange import Stage
from homing.ext_proc.nginx_requests import OpenRequest, OpenRequests
from homing.ext_proc.routed import DESTINATION

OURS = ("x-homing-request", "x-homing-connection", "x-homing-pool", "x-homing-path", "x-homing-body-bytes")


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` without content-length."""

    status: int
    headers: SetHeaders
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something is read first: `wait` is bounded and never raises; then `resume`, once."""

    wait: Awaitable[object]
    resume: Callable[[], Reply | Waiting]


def decide(requests: OpenRequests, raw: dict[str, bytes], body: bytes) -> Reply | Waiting:
    """One question. `raw`: its headers in lower case, the first of equal names; they are taken apart here."""
    request_id, connection, pool, path, size = (raw.pop(name, b"").decode("latin-1") for name in OURS)
    if not request_id:
        return Reply(400, (), b"x-homing-request is missing\n")
    question = Question(requests, request_id, requests.get(request_id, connection), body)
    if question.request.exchange.stage is not Stage.FRESH:
        return question.headers_answered(HeadersAnswer((), want_body=True))
    return question.headers_answered(question.request.exchange.receive(_headers_event(raw, pool or None, path, size)))


@dataclass(frozen=True, slots=True)
class Question:
    """A question between what the exchange says of its headers and of its body."""

    requests: OpenRequests
    request_id: str
    request: OpenRequest
    body: bytes

    def headers_answered(self, answer: Answer | Later) -> Reply | Waiting:
        if isinstance(answer, Later):
            resume = answer.resume
            return Waiting(answer.wait, lambda: self.headers_answered(resume()))
        if isinstance(answer, HeadersAnswer) and answer.want_body and self.body:
            self.request.told += answer.set_headers
            return self._body_answered(self.request.exchange.receive(RequestBodyReceived(self.body)))
        return self._reply(answer)

    def _body_answered(self, answer: Answer | Later) -> Reply | Waiting:
        if isinstance(answer, Later):
            resume = answer.resume
            return Waiting(answer.wait, lambda: self._body_answered(resume()))
        return self._reply(answer)

    def _reply(self, answer: Answer) -> Reply:
        if self.requests.over(self.request_id):
            self.request.exchange.close()
        if isinstance(answer, Reject):
            self.requests.close(self.request_id)
            return _refusal(answer)
        if not isinstance(answer, HeadersAnswer | BodyAnswer):
            return Reply(200, ())
        self.request.told += answer.set_headers
        return _reply(answer, self.request.told)


def _headers_event(raw: dict[str, bytes], pool: str | None, path: str, size: str) -> RequestHeadersReceived:
    raw["content-length"] = size.encode("latin-1")  # not of the question
    raw[":path"] = path.encode("latin-1")
    raw[":method"] = b"POST"
    model = raw.pop("x-homing-model", b"").decode("latin-1") or None
    return RequestHeadersReceived(raw, model, pool, has_body=bool(size))


def _refusal(answer: Reject) -> Reply:
    headers: SetHeaders = (("x-homing-reject", b"%d" % answer.status),)
    if answer.retry_after_s is not None:
        headers += (("retry-after", b"%d" % answer.retry_after_s),)
    return Reply(200, headers, answer.message.encode())


def _reply(answer: HeadersAnswer | BodyAnswer, told: SetHeaders) -> Reply:
    headers, by_name = told, dict(told)
    # where the pool only observes, there is a decision and no destination
    if DESTINATION in by_name and (ref := Ref.decode(by_name.get("x-homing-ref", b"").decode("latin-1"))) is not None:
        headers += (("x-homing-replica", ref.told.encode("latin-1")),)
    if isinstance(answer, HeadersAnswer) and answer.want_body:
        headers += (("x-homing-body", b"wanted"),)
    body = answer.body if isinstance(answer, BodyAnswer) and answer.body is not None else b""
    return Reply(200, headers, body)
