"""Faults on demand: what goes wrong, for which requests, and how often."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from enum import StrEnum

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homing.sim.errors import UnavailableError

GARBAGE = b"\x00\xff\x13 this is not HTTP \r\n\r\n" * 4


class FaultKind(StrEnum):
    HANG = "hang"  # takes the request and never answers
    UNAVAILABLE = "unavailable"  # 503
    RESET = "reset"  # the connection ends with a TCP reset
    CUT = "cut"  # the connection ends without the end of the answer
    GARBAGE = "garbage"  # bytes that are no HTTP, then the end


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: parts of the body that still go out well. `count`: requests it befalls; none means all."""

    kind: FaultKind
    after: int = 0
    count: int | None = None
    paths: tuple[str, ...] = ()  # beginnings; none means every POST

    def befalls(self, method: str, path: str) -> bool:
        return path.startswith(self.paths) if self.paths else method == "POST"


class Faults:
    """The fault that is on, if any."""

    def __init__(self) -> None:
        self.current: Fault | None = None
        self.left: int | None = None
        self._changed = asyncio.Event()

    def set(self, fault: Fault | None) -> None:
        """Requests that hang are let go."""
        self.current = fault
        self.left = None if fault is None else fault.count
        self._changed.set()
        self._changed = asyncio.Event()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault for this request, which counts as befallen."""
        fault = self.current
        if fault is None or not fault.befalls(method, path) or self.left == 0:
            return None
        if self.left is not None:
            self.left -= 1
        return fault

    async def until_changed(self) -> None:
        await self._changed.wait()


FindTransport = Callable[[object], asyncio.Transport | None]


class Faulty:
    """ASGI middleware. `find_transport` gives the connection of a scope's `client`."""

    def __init__(self, app: ASGIApp, faults: Faults, find_transport: FindTransport) -> None:
        self._app = app
        self._faults = faults
        self._find = find_transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.take(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, receive, send)
        elif fault.kind is FaultKind.HANG:
            await self._hang(receive)
            self._end(scope, FaultKind.CUT)
        elif fault.kind is FaultKind.UNAVAILABLE:
            await _refuse(send)
        else:
            await self._app(scope, receive, self._breaking(fault, scope, send))

    async def _hang(self, receive: Receive) -> None:
        """Until the client leaves or the fault is taken away."""
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(_until_disconnect(receive)),
                group.create_task(self._faults.until_changed()),
            ]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()

    def _breaking(self, fault: Fault, scope: Scope, send: Send) -> Send:
        """`send`, until `fault.after` parts of the body have gone out."""
        left, broken = fault.after, False

        async def breaking(message: Message) -> None:
            nonlocal left, broken
            if broken:
                return
            if left == 0:
                # Before the head with `after` 0: the client sees no status at all.
                broken = True
                self._end(scope, fault.kind)
                return
            if message["type"] == "http.response.body":
                left -= 1
                message["more_body"] = True
            await send(message)

        return breaking

    def _end(self, scope: Scope, kind: FaultKind) -> None:
        transport = self._find(scope["client"])
        if transport is None:
            return
        if kind is FaultKind.GARBAGE:
            transport.write(GARBAGE)
        if kind is FaultKind.RESET:
            # Closing with a linger time of zero is what makes the kernel send a reset.
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()


async def _refuse(send: Send) -> None:
    body = UnavailableError("The replica is unavailable.").body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": UnavailableError.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
