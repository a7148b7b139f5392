"""The replica's HTTP surface: which path goes where, and what an error looks like."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homing.sim import metrics
from homing.sim.chat import chat
from homing.sim.completions import completions
from homing.sim.errors import RequestError, TooLargeError
from homing.sim.replica import Replica
from homing.sim.shapes import ModelCard, ModelList

MAX_BODY_BYTES = 64 << 20

Endpoint = Callable[[Replica, bytes, Mapping[str, str]], ASGIApp]

POSTS: dict[str, Endpoint] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
}

log = logging.getLogger(__name__)


def build_app(replica: Replica) -> ASGIApp:
    """Every response carries `x-sim-replica`."""
    routes = [Route(path, _post(replica, endpoint), methods=["POST"]) for path, endpoint in POSTS.items()]
    routes += [
        Route("/v1/models", _get(lambda: _json(_models(replica)))),
        Route("/health", _get(lambda: Response())),
        Route("/metrics", _get(lambda: Response(replica.metrics.exposition(), media_type=metrics.CONTENT_TYPE))),
    ]
    return Signed(Starlette(routes=routes), replica.identity.id)


class Signed:
    """Names the replica in every response."""

    def __init__(self, app: ASGIApp, replica_id: str) -> None:
        self._app = app
        self._header = (b"x-sim-replica", replica_id.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self._header]
            await send(message)

        await self._app(scope, receive, signed if scope["type"] == "http" else send)


def _post(replica: Replica, endpoint: Endpoint) -> Callable[[Request], object]:
    async def handle(request: Request) -> ASGIApp:
        try:
            return endpoint(replica, await _body(request), request.headers)
        except RequestError as error:
            return Response(error.body(), error.status, media_type="application/json")

    return handle


def _get(answer: Callable[[], Response]) -> Callable[[Request], object]:
    async def handle(_: Request) -> Response:
        return answer()

    return handle


async def _body(request: Request) -> bytes:
    """Raises TooLargeError."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise TooLargeError(f"The request body is larger than {MAX_BODY_BYTES} bytes.")
        parts.append(part)
    return b"".join(parts)


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _models(replica: Replica) -> ModelList:
    identity = replica.identity
    card = ModelCard(
        id=identity.model, created=identity.started_s, root=identity.model, max_model_len=identity.max_model_len
    )
    return ModelList(data=[card])
