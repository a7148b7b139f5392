"""The picker's own HTTP port: health and metrics."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def app(registry: CollectorRegistry, not_ready: Callable[[], str | None]) -> Starlette:
    """`/healthz` (the process answers), `/readyz` (503 with the reason until it can decide), `/metrics`."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        reason = not_ready()
        return PlainTextResponse("ok\n") if reason is None else PlainTextResponse(f"{reason}\n", 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])


@contextlib.contextmanager
def listener(address: str) -> Iterator[socket.socket]:
    """A bound socket for `unix:/path` or `host:port`; a Unix socket's file is removed at the end. Raises OSError."""
    path = address.removeprefix("unix:") if address.startswith("unix:") else None
    if path is None:
        host, _, port = address.rpartition(":")
        bound = socket.create_server((host.strip("[]"), int(port)), backlog=128)
    else:
        Path(path).unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(path)
    try:
        yield bound
    finally:
        bound.close()
        if path is not None:
            Path(path).unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(application: Starlette, bound: socket.socket) -> None:
    """Until cancelled."""
    config = uvicorn.Config(application, lifespan="off", access_log=False, log_config=None, ws="none")
    await _Server(config).serve([bound])
