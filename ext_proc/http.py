"""The picker's own HTTP port: health and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route


def app(registry: CollectorRegistry, not_ready: Callable[[], str | None], more: Iterable[BaseRoute] = ()) -> Starlette:
    """`/healthz` (the process answers), `/readyz` (503 with the reason until it can decide), `/metrics`, and `more`."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        reason = not_ready()
        return PlainTextResponse("ok\n") if reason is None else PlainTextResponse(f"{reason}\n", 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    own = (Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics))
    return Starlette(routes=[*own, *more])
