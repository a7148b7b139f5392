"""The replica's HTTP surface: which path goes where, and what an error looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homing.sim import metrics
from homing.sim.chat import chat
from homing.sim.completions import completions
from homing.sim.errors import MalformedError, RequestError, TooLargeError
from homing.sim.messages import count_tokens, error_body, messages
from homing.sim.pooling import embeddings, rerank, score
from homing.sim.replica import Replica, new_id
from homing.sim.responses import responses, stored_response
from homing.sim.sagemaker import invocations
from homing.sim.serving import json_response
from homing.sim.shapes import Load, ModelCard, ModelList, ModelPermission, Version
from homing.sim.tokenization import detokenize, tokenize

MAX_BODY_BYTES = 64 << 20
VLLM_VERSION = "0.32.0"  # whose behaviour this is

Endpoint = Callable[[Replica, bytes, Mapping[str, str]], ASGIApp]

POSTS: dict[str, Endpoint] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/v1/responses": responses,
    "/invocations": invocations,
    "/v1/embeddings": embeddings,
    "/rerank": rerank,
    "/v1/rerank": rerank,
    "/v2/rerank": rerank,
    "/score": score,
    "/v1/score": score,
    "/tokenize": tokenize,
    "/detokenize": detokenize,
}
ANTHROPIC: dict[str, Endpoint] = {
    "/v1/messages": messages,
    "/v1/messages/count_tokens": count_tokens,
}


def build_app(replica: Replica) -> ASGIApp:
    """Every response carries `x-sim-replica`."""

    def posts(endpoints: dict[str, Endpoint], encode_error: Callable[[RequestError], bytes]) -> list[Route]:
        return [Route(p, _post(replica, e, encode_error), methods=["POST"]) for p, e in endpoints.items()]

    engine = replica.driver.engine
    routes = [
        *posts(POSTS, RequestError.body),
        *posts(ANTHROPIC, error_body),
        Route("/v1/responses/{response_id}", _stored_response(replica)),
        Route("/v1/models", _get(lambda: json_response(_models(replica)))),
        Route("/version", _get(lambda: json_response(Version(VLLM_VERSION)))),
        Route("/health", _get(lambda: Response())),
        Route("/load", _get(lambda: json_response(Load(engine.running + engine.waiting)))),
        Route("/metrics", _get(lambda: Response(replica.metrics.exposition(), media_type=metrics.CONTENT_TYPE))),
    ]
    return Signed(Starlette(routes=routes, exception_handlers={HTTPException: _http_error}), replica.identity.id)


class Signed:
    """Names the replica in every response, and the data-parallel rank that the request asked for."""

    def __init__(self, app: ASGIApp, replica_id: str) -> None:
        self._app = app
        self._header = (b"x-sim-replica", replica_id.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["headers"] if scope["type"] == "http" else ()
        ranks = [(b"x-sim-rank", value) for name, value in asked if name == b"x-data-parallel-rank"]

        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self._header, *ranks]
            await send(message)

        await self._app(scope, receive, signed if scope["type"] == "http" else send)


def _post(
    replica: Replica, endpoint: Endpoint, encode_error: Callable[[RequestError], bytes]
) -> Callable[[Request], object]:
    async def handle(request: Request) -> ASGIApp:
        try:
            return endpoint(replica, await _body(request), request.headers)
        except MalformedError as error:  # found before vLLM knows whose shape the answer must have
            return Response(error.body(), error.status, media_type="application/json")
        except RequestError as error:
            return Response(encode_error(error), error.status, media_type="application/json")

    return handle


def _stored_response(replica: Replica) -> Callable[[Request], object]:
    async def handle(request: Request) -> Response:
        try:
            return stored_response(replica, request.path_params["response_id"])
        except RequestError as error:
            return Response(error.body(), error.status, media_type="application/json")

    return handle


async def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    body = msgspec.json.encode({"detail": error.detail})
    return Response(body, error.status_code, error.headers, media_type="application/json")


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


def _models(replica: Replica) -> ModelList:
    identity = replica.identity
    card = ModelCard(
        id=identity.model,
        created=identity.started_s,
        root=identity.model,
        max_model_len=identity.max_model_len,
        permission=[ModelPermission(id=new_id("modelperm-"), created=identity.started_s)],
    )
    return ModelList(data=[card])
