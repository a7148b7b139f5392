"""The picker for NGINX: one exchange a request over HTTP, ended by NGINX's access log.

`POST /decide` with the client's headers and, of ours, x-homing-request (NGINX's id of the request), x-homing-pool,
x-homing-model, x-homing-path, x-homing-has-body, x-homing-given, x-homing-key and x-session-id. The body is that of the
request, or empty where NGINX keeps it back to spare the copy. Answers 200:

- headers as the exchange sets them, and x-homing-replica, the choice; none where the hash is to decide
- x-homing-body: `wanted` where the body is needed: NGINX asks again, with it
- a body: what is to be sent to the replica instead of the client's
- x-homing-reject: the status by which the request ends here; the body is the message

Times in seconds of a monotonic clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
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
)
from homing.ext_proc.exchange import Exchange, Stage
from homing.ext_proc.picker import Picker

MAX_OPEN = 100_000
OPEN_S = 3600.0
"""A request whose log line was lost gives its slot back after so long: an answer takes no longer than NGINX waits."""

OURS = ("x-homing-request", "x-homing-pool", "x-homing-path", "x-homing-has-body")


class OpenRequests:
    """Exchanges by NGINX's id of the request, the oldest first."""

    def __init__(self, open_exchange: Callable[[], Exchange], clock: Callable[[], float]) -> None:
        self._open_exchange = open_exchange
        self._clock = clock
        self._open: dict[str, tuple[Exchange, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def exchange(self, request_id: str) -> Exchange:
        """The exchange of that request; a new one the first time."""
        known = self._open.get(request_id)
        if known is None:
            self._forget()
            known = self._open[request_id] = (self._open_exchange(), self._clock())
        return known[0]

    def close(self, request_id: str) -> bool:
        """The request has ended. Whether it was ours."""
        known = self._open.pop(request_id, None)
        if known is not None:
            known[0].close()
        return known is not None

    def _forget(self) -> None:
        while self._open:
            first = next(iter(self._open))
            if len(self._open) < MAX_OPEN and self._clock() - self._open[first][1] < OPEN_S:
                return
            self.close(first)


@contextlib.asynccontextmanager
async def for_nginx(picker: Picker, log: Address | None, clock: Callable[[], float]) -> AsyncIterator[Sequence[Route]]:
    """The routes by which NGINX asks, while its access log comes in at `log`; none without. Raises OSError when that
    address cannot be had."""
    if log is None:
        yield ()
        return
    requests = OpenRequests(lambda: Exchange(picker), clock)

    def ended(line: nginx_log.Line) -> None:
        # every picker hears of every request of NGINX's, and counts those that it decided about
        if requests.close(line.request):
            picker.finished(nginx_log.outcome(line))

    async with nginx_log.listening(log, ended):
        yield routes(requests)


def routes(requests: OpenRequests) -> list[Route]:
    async def decide(request: Request) -> Response:
        request_id = request.headers.get("x-homing-request", "")
        if not request_id:
            return Response("x-homing-request is missing\n", 400)
        exchange = requests.exchange(request_id)
        body = await request.body()
        answer: Answer = HeadersAnswer((), want_body=True)
        if exchange.stage is Stage.FRESH:
            answer = await _receive(exchange, _headers_event(request))
        if isinstance(answer, HeadersAnswer) and answer.want_body and body:
            first = answer
            answer = await _receive(exchange, RequestBodyReceived(body))
            if isinstance(answer, BodyAnswer):
                answer = BodyAnswer(answer.body, (*first.set_headers, *answer.set_headers))
        if isinstance(answer, Reject):
            requests.close(request_id)
        return _response(answer)

    return [Route("/decide", decide, methods=["POST"])]


async def _receive(exchange: Exchange, event: Event) -> Answer:
    answer = exchange.receive(event)
    while isinstance(answer, Later):
        await answer.wait
        answer = answer.resume()
    return answer


def _headers_event(request: Request) -> RequestHeadersReceived:
    raw = {name.decode("latin-1"): value for name, value in reversed(request.scope["headers"])}
    of_ours = {name: raw.pop(name, b"").decode("latin-1") for name in OURS}
    raw[":path"] = of_ours["x-homing-path"].encode("latin-1")
    raw[":method"] = b"POST"
    if not raw.get("x-homing-given"):
        raw.pop("x-homing-given", None)
    model = raw.pop("x-homing-model", b"").decode("latin-1") or None
    pool = of_ours["x-homing-pool"] or None
    return RequestHeadersReceived(raw, model, pool, has_body=of_ours["x-homing-has-body"] == "1")


def _response(answer: Answer) -> Response:
    if isinstance(answer, Reject):
        return Response(answer.message, 200, headers={"x-homing-reject": str(answer.status)})
    if not isinstance(answer, HeadersAnswer | BodyAnswer):
        return Response()
    response = Response(answer.body if isinstance(answer, BodyAnswer) and answer.body is not None else b"")
    for name, value in answer.set_headers:
        response.raw_headers.append((name.encode("latin-1"), value))
        if name == "x-homing-ref" and (ref := Ref.decode(value.decode("latin-1"))) is not None:
            response.raw_headers.append((b"x-homing-replica", ref.told.encode("latin-1")))
    if isinstance(answer, HeadersAnswer) and answer.want_body:
        response.raw_headers.append((b"x-homing-body", b"wanted"))
    return response
