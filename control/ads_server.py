"""The gRPC server of the aggregated discovery service, around `ads.AdsStream` and `delta.DeltaStream`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)

from homing.control.ads import Acked, AdsStream, Answer, Nacked, Output, Send, TypeState
from homing.control.ads_codec import Node, decode, decode_delta, decode_node, encode, encode_delta
from homing.control.delta import DeltaOutput, DeltaStream, SendDelta
from homing.control.latest import Latest
from homing.control.snapshot import Snapshot
from homing.core.config import Address

log = logging.getLogger(__name__)

Request: TypeAlias = DiscoveryRequest | DeltaDiscoveryRequest
Context = grpc.aio.ServicerContext[Request, DiscoveryResponse | DeltaDiscoveryResponse]
Machine = AdsStream | DeltaStream
Parts = Callable[[frozenset[str]], Awaitable[Snapshot | None]]
"""Makes the snapshot of these pools alone; None if there is none of them, or it cannot be made."""

OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second control service must fail, not share the port
    # Envoy's keepalive pings are welcome: grpc's default takes more than one in five minutes for an attack.
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    # A client that froze is dropped, and its buffers with it.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

MAX_ERROR_CHARS = 500


Admits: TypeAlias = Callable[[str], bool]


def everybody(_: str) -> bool:
    """Admits."""
    return True


class PortInUseError(OSError):
    """The address cannot be listened on."""


@dataclass(slots=True)
class Stream:
    """One connected client, as `/api/xds` shows it. `told` is the serial of the newest snapshot it was fed."""

    peer: str
    machine: Machine
    told: int
    node: Node = field(default_factory=Node)
    late: bool = False  # it let a wait run out, and is not waited for until it has caught up
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one event with all its writes at a time

    @property
    def types(self) -> Mapping[str, TypeState]:
        return self.machine.types

    def answer(self, serial: int) -> Answer:
        return self.machine.answer if self.told >= serial else Answer.PENDING


@dataclass(slots=True)
class Counts:
    """Since the start; counters by type URL."""

    responses: Counter[str] = field(default_factory=Counter)
    acks: Counter[str] = field(default_factory=Counter)
    nacks: Counter[str] = field(default_factory=Counter)
    late: int = 0  # waits that ran out, by stream


class AdsServer:
    """Serves the newest snapshot to every stream. `publish` and everything else on the loop's thread only."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._snapshot: Latest[Snapshot | None] = Latest(None)
        self._progress: Latest[None] = Latest(None)
        self._parts: Parts | None = None
        self._made: dict[frozenset[str], asyncio.Future[Snapshot | None]] = {}
        self._streams: dict[int, Stream] = {}
        self._opened = 0
        self._server: grpc.aio.Server | None = None
        self._admits: Admits = everybody

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest published one."""
        return self._snapshot.value

    @property
    def serial(self) -> int:
        """How many snapshots were published."""
        return self._snapshot.serial

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Those that are connected, oldest first."""
        return tuple(self._streams.values())

    async def start(
        self, address: Address, credentials: grpc.ServerCredentials | None = None, admits: Admits = everybody
    ) -> int:
        """Listens; returns the port. `credentials`: None for plain text; `admits`: whether who shows this in
        `authorization` may connect. Raises PortInUseError."""
        self._admits = admits
        server = grpc.aio.server(options=OPTIONS)
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(_Servicer(self), server)
        try:
            if credentials is None:
                port = server.add_insecure_port(str(address))
            else:
                port = server.add_secure_port(str(address), credentials)
        except RuntimeError as e:
            raise PortInUseError(str(e)) from None
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float = 0.2) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)

    def publish(self, snapshot: Snapshot, parts: Parts | None = None) -> None:
        """Makes it the newest. Must not be dangling. Every stream sends what differs for it, in its own time. `parts`:
        makes what clients are told that want to know of some pools only."""
        if self.snapshot is None or snapshot.version != self.snapshot.version:
            self._parts, self._made = parts, {}
            self._snapshot.set(snapshot)

    async def wait_acked(self, version: str, timeout_s: float) -> Answer:
        """What the connected clients say to the snapshot `version`, or to a newer one that replaced it.

        ACKED when all of them accepted it (also when there are none), NACKED when all have answered and one refused,
        PENDING when one has not answered within `timeout_s`. A client that is late is waited for once, not at every
        change: one frozen Envoy must not slow down what all others hear.
        """
        serial = self._snapshot.serial
        try:
            async with asyncio.timeout(timeout_s):
                while (answer := self._answer(serial)) is Answer.PENDING:
                    await self._progress.after(self._progress.serial)
        except TimeoutError:
            for stream in self._streams.values():
                if not stream.late and stream.answer(serial) is Answer.PENDING:
                    stream.late = True
                    self.counts.late += 1
                    log.warning("Envoy %s has not answered to snapshot %s in time", stream.node.id, version)
        return answer

    def _answer(self, serial: int) -> Answer:
        answers = {stream.answer(serial) for stream in self._streams.values() if not stream.late}
        return next((a for a in (Answer.PENDING, Answer.NACKED) if a in answers), Answer.ACKED)

    async def serve(self, context: Context, machine: Callable[[Snapshot | None], Machine]) -> None:
        """One stream, from its first request to its end."""
        if not self._admits(_authorization(context)):
            log.warning("somebody at %s has not shown tokens.fleet, and is told nothing", context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "tokens.fleet is asked for")
        serial = self._snapshot.serial
        stream = Stream(context.peer(), machine(self._snapshot.value), serial)
        self._opened += 1
        key = self._opened
        self._streams[key] = stream
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow(stream, context))
                await self._read(stream, context)
                following.cancel()
        except* asyncio.InvalidStateError:
            pass  # "RPC already finished": the client left, or we stopped, between its request and our answer
        finally:
            del self._streams[key]
            self._progress.set(None)

    async def _read(self, stream: Stream, context: Context) -> None:
        first = True
        while (request := await context.read()) is not grpc.aio.EOF:
            if first:
                stream.node, first = decode_node(request), False
                log.info("Envoy %s connected from %s", stream.node.id, stream.peer)
                await self._begin(stream)
            async with stream.turn:
                await self._write(stream, context, _requested(stream.machine, request))

    async def _begin(self, stream: Stream) -> None:
        """Nothing was sent yet: now it is known what the client wants to know of."""
        if stream.node.pools:
            async with stream.turn:
                stream.told = self._snapshot.serial
                snapshot = self._snapshot.value
                stream.machine = type(stream.machine)(await self._part(stream.node, snapshot) if snapshot else None)

    async def _part(self, node: Node, snapshot: Snapshot) -> Snapshot | None:
        """What of the newest snapshot is for this client; None if that cannot be made. Made once for all that want the
        same."""
        if not node.pools or self._parts is None:
            return snapshot
        made = self._made.get(node.pools)
        if made is None:
            made = self._made[node.pools] = asyncio.ensure_future(self._parts(node.pools))
        return await asyncio.shield(made)

    async def _follow(self, stream: Stream, context: Context) -> None:
        while True:
            serial, snapshot = await self._snapshot.after(stream.told)
            assert snapshot is not None  # only the first value is
            async with stream.turn:
                # While this stream waited for its turn there may have come another: only the newest matters.
                serial, snapshot = self._snapshot.serial, self._snapshot.value or snapshot
                stream.told = serial
                part = await self._part(stream.node, snapshot)
                if part is not None:
                    await self._write(stream, context, stream.machine.published(part))

    async def _write(self, stream: Stream, context: Context, outputs: tuple[Output | DeltaOutput, ...]) -> None:
        stream.late = stream.late and stream.answer(self._snapshot.serial) is Answer.PENDING
        self._progress.set(None)
        for output in outputs:
            match output:
                case Send():
                    self.counts.responses[output.type_url] += 1
                    await context.write(encode(output))
                case SendDelta():
                    self.counts.responses[output.type_url] += 1
                    await context.write(encode_delta(output))
                case Acked():
                    self.counts.acks[output.type_url] += 1
                case Nacked():
                    self.counts.nacks[output.type_url] += 1
                    reason = output.error[:MAX_ERROR_CHARS].replace("\n", " ")
                    log.error("Envoy %s refused %s: %s", stream.node.id, output.type_url.rpartition(".")[2], reason)


def _authorization(context: Context) -> str:
    """Empty where there is none."""
    found = (value for name, value in context.invocation_metadata() or () if name == "authorization")
    first = next(found, "")
    return first if isinstance(first, str) else ""


def _requested(machine: Machine, request: object) -> tuple[Output | DeltaOutput, ...]:
    if isinstance(machine, DeltaStream):
        assert isinstance(request, DeltaDiscoveryRequest)
        return machine.requested(decode_delta(request))
    assert isinstance(request, DiscoveryRequest)
    return machine.requested(decode(request))


class _Servicer:
    """What the generated code calls."""

    def __init__(self, server: AdsServer) -> None:
        self._server = server

    async def StreamAggregatedResources(self, _requests: object, context: Context) -> None:  # noqa: N802
        await self._server.serve(context, AdsStream)

    async def DeltaAggregatedResources(self, _requests: object, context: Context) -> None:  # noqa: N802
        await self._server.serve(context, DeltaStream)
