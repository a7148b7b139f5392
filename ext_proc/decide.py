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

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from homing.core.config import Address
from homing.core.placement.decision import Ref
from homing.ext_proc import nginx_log
from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
    Event,
    HeadersAnswer,
    Later,
    Reject,
    RequestBodyReceived,
    RequestHeadersReceived,
    SetHeaders,
)
from homing.ext_proc.exchange import Exchange, Stage
from homing.ext_proc.nginx_requests import OpenRequests
from homing.ext_proc.picker import Picker
from homing.ext_proc.routed import DESTINATION

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

OURS = ("x-homing-request", "x-homing-connection", "x-homing-pool", "x-homing-path", "x-homing-body-bytes")

RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` in lower case, without content-length."""

    status: int
    headers: RawHeaders
    body: bytes = b""


@contextlib.asynccontextmanager
async def for_nginx(picker: Picker, log: Address | None, clock: Callable[[], float]) -> AsyncIterator[Sequence[Route]]:
    """The routes by which NGINX asks, while its access log comes in at `log`; none without. Raises OSError when that
    address cannot be had."""
    if log is None:
        yield ()
        return
    requests = OpenRequests(lambda: Exchange(picker), clock)

    def ended(line: nginx_log.Line) -> None:
        # every picker hears of every request of NGINX's: it counts those that it decided about, and learns from all
        if line.learn:
            nginx_log.learn(line, picker)
        if requests.close(line.request):
            picker.finished(nginx_log.outcome(line))

    async with nginx_log.listening(log, ended):
        yield [Route("/decide", _Asgi(requests), methods=["POST"])]


async def decide(requests: OpenRequests, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Reply:
    """One question."""
    raw = {name.decode("latin-1"): value for name, value in headers}
    request_id, connection, pool, path, size = (raw.pop(name, b"").decode("latin-1") for name in OURS)
    if not request_id:
        return Reply(400, [], b"x-homing-request is missing\n")
    request = requests.get(request_id, connection)
    exchange = request.exchange
    answer: Answer = HeadersAnswer((), want_body=True)
    if exchange.stage is Stage.FRESH:
        answer = await _receive(exchange, _headers_event(raw, pool or None, path, size))
    if isinstance(answer, HeadersAnswer) and answer.want_body and body:
        request.told = (*request.told, *answer.set_headers)
        answer = await _receive(exchange, RequestBodyReceived(body))
    if requests.over(request_id):
        exchange.close()
    if isinstance(answer, Reject):
        requests.close(request_id)
        return _refusal(answer)
    if not isinstance(answer, HeadersAnswer | BodyAnswer):
        return Reply(200, [])
    request.told = (*request.told, *answer.set_headers)
    return _reply(answer, request.told)


class _Asgi:
    """`decide` as an ASGI application."""

    def __init__(self, requests: OpenRequests) -> None:
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        # of equal names the first counts
        reply = await decide(self._requests, reversed(scope["headers"]), body)
        headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})


async def _receive(exchange: Exchange, event: Event) -> Answer:
    answer = exchange.receive(event)
    while isinstance(answer, Later):
        await answer.wait
        answer = answer.resume()
    return answer


def _headers_event(raw: dict[str, bytes], pool: str | None, path: str, size: str) -> RequestHeadersReceived:
    raw["content-length"] = size.encode("latin-1")  # not of the question
    raw[":path"] = path.encode("latin-1")
    raw[":method"] = b"POST"
    model = raw.pop("x-homing-model", b"").decode("latin-1") or None
    return RequestHeadersReceived(raw, model, pool, has_body=bool(size))


def _refusal(answer: Reject) -> Reply:
    headers = [(b"x-homing-reject", b"%d" % answer.status)]
    if answer.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % answer.retry_after_s))
    return Reply(200, headers, answer.message.encode())


def _reply(answer: HeadersAnswer | BodyAnswer, told: SetHeaders) -> Reply:
    headers = [(name.encode("latin-1"), value) for name, value in told]
    by_name = dict(told)
    # where the pool only observes, there is a decision and no destination
    if DESTINATION in by_name and (ref := Ref.decode(by_name.get("x-homing-ref", b"").decode("latin-1"))) is not None:
        headers.append((b"x-homing-replica", ref.told.encode("latin-1")))
    if isinstance(answer, HeadersAnswer) and answer.want_body:
        headers.append((b"x-homing-body", b"wanted"))
    body = answer.body if isinstance(answer, BodyAnswer) and answer.body is not None else b""
    return Reply(200, headers, body)
