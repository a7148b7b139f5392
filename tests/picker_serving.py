"""A transport that serves with a router of the test's, and what a client says to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from grpc_health.v1 import health_pb2, health_pb2_grpc

from homing.ext_proc.events import (
    BodyAnswer,
    Event,
    RequestHeadersReceived,
    ResponseHeadersReceived,
    SetHeaders,
)
from homing.ext_proc.exchange import Exchange, Reading, Stage
from homing.ext_proc.outcomes import Outcome
from homing.ext_proc.server_grpc import GrpcTransport
from homing.ext_proc.server_h2 import H2Transport
from homing.ext_proc.transport import EXT_PROC, Transport

LIMIT_S = 10.0
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class FakeRouter:
    """Wants every body and gives it back turned round. Counts the slots that are held."""

    def __init__(self) -> None:
        self.requests: list[RequestHeadersReceived] = []
        self.violations: list[Stage] = []
        self.held = 0
        self.wait: asyncio.Future[None] | None = None

    def route(self, request: RequestHeadersReceived) -> FakeRouted | Reading[FakeRouted]:
        if "x-bug" in request.headers:
            raise RuntimeError("a bug")
        if "x-read" in request.headers:
            self.wait = asyncio.get_running_loop().create_future()
            return Reading(self.wait, lambda: self._place(request))
        return self._place(request)

    def _place(self, request: RequestHeadersReceived) -> FakeRouted:
        self.requests.append(request)
        self.held += 1
        return FakeRouted(self)

    def learn(self, answer: ResponseHeadersReceived) -> None:
        """The headers say all there is."""

    def violated(self, stage: Stage, event: Event) -> None:
        self.violations.append(stage)


@dataclass
class FakeRouted:
    router: FakeRouter
    set_headers: SetHeaders = (("x-homing-decision", b"home"),)
    want_body: bool = True
    reroute: bool = False

    def rewrite(self, body: bytes) -> BodyAnswer:
        return BodyAnswer(body[::-1])

    def release(self) -> None:
        self.router.held -= 1


@dataclass
class Serving:
    """A transport that serves, its router and outcomes, and a client's channel to it."""

    path: Path
    kind: type[GrpcTransport] | type[H2Transport]
    router: FakeRouter = field(default_factory=FakeRouter)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.address = f"unix:{self.path}"
        self.transport = self.another()
        unlimited = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        self.channel = grpc.aio.insecure_channel(self.address, unlimited)

    def another(self, address: str = "") -> Transport:
        return self.kind(address or self.address, lambda: Exchange(self.router), self.outcomes.append)

    def process(self, metadata: tuple[tuple[str, str], ...] = ()) -> grpc.aio.StreamStreamCall[bytes, bytes]:
        return self.channel.stream_stream(f"/{EXT_PROC}/Process")(metadata=metadata, timeout=LIMIT_S)

    async def health(self, name: str) -> int:
        stub = health_pb2_grpc.HealthStub(self.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=LIMIT_S)
        return int(answer.status)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 (what it waits for is on the other side of a socket)
            await asyncio.sleep(0.005)


def headers(**values: str) -> bytes:
    message = ProcessingRequest()
    message.request_headers.SetInParent()
    for key, value in values.items():
        message.request_headers.headers.headers.add(key=key.replace("_", "-"), raw_value=value.encode())
    return message.SerializeToString()


def body(content: bytes) -> bytes:
    message = ProcessingRequest()
    message.request_body.body = content
    return message.SerializeToString()


async def told(call: grpc.aio.StreamStreamCall[bytes, bytes], message: bytes) -> ProcessingResponse:
    """The answer to one message."""
    await call.write(message)
    answer = await call.read()
    assert isinstance(answer, bytes), answer
    return ProcessingResponse.FromString(answer)
