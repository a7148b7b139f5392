"""The admin port: break the replica, slow it down, make it forget, restart it. Not part of vLLM's surface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from homing.sim.errors import RequestError
from homing.sim.faults import Fault, Faults
from homing.sim.requests import parse
from homing.sim.serving import json_response


class Restart(msgspec.Struct, forbid_unknown_fields=True):
    down_s: float = 0.0


class Speed(msgspec.Struct, forbid_unknown_fields=True):
    slowdown: float


class Status(msgspec.Struct):
    life: int  # 1 at first, one more with each restart
    slowdown: float
    fault: Fault | None
    fault_left: int | None


class Controls(Protocol):
    """What the admin port may do to the process."""

    faults: Faults

    @property
    def life(self) -> int: ...

    @property
    def slowdown(self) -> float: ...

    def slow_down(self, factor: float) -> None: ...

    def lose_cache(self) -> None: ...

    def restart(self, down_s: float) -> None: ...


def build_admin(controls: Controls) -> Starlette:
    def status() -> Response:
        faults = controls.faults
        return json_response(Status(controls.life, controls.slowdown, faults.current, faults.left))

    def put_fault(body: bytes) -> Response:
        controls.faults.set(parse(body, Fault))
        return status()

    def delete_fault(_: bytes) -> Response:
        controls.faults.set(None)
        return status()

    def put_speed(body: bytes) -> Response:
        controls.slow_down(max(parse(body, Speed).slowdown, 0.0))
        return status()

    def lose_cache(_: bytes) -> Response:
        controls.lose_cache()
        return status()

    def restart(body: bytes) -> Response:
        controls.restart(parse(body or b"{}", Restart).down_s)
        return status()

    return Starlette(
        routes=[
            Route("/status", _handler(lambda _: status())),
            Route("/fault", _handler(put_fault), methods=["PUT"]),
            Route("/fault", _handler(delete_fault), methods=["DELETE"]),
            Route("/speed", _handler(put_speed), methods=["PUT"]),
            Route("/cache", _handler(lose_cache), methods=["DELETE"]),
            Route("/restart", _handler(restart), methods=["POST"]),
        ]
    )


def _handler(act: Callable[[bytes], Response]) -> Callable[[Request], object]:
    async def handle(request: Request) -> Response:
        try:
            return act(await request.body())
        except RequestError as error:
            return Response(error.body(), error.status, media_type="application/json")

    return handle
