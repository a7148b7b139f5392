"""The gRPC server of the aggregated discovery service, around `ads.AdsStream`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from homing.control.ads import Acked, AdsStream, Answer, Event, Nacked, Send, SnapshotPublished, TypeState
from homing.control.ads_codec import Node, decode, decode_node, encode
from homing.control.latest import Latest
from homing.control.snapshot import Snapshot
from homing.core.config import Address

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[DiscoveryRequest, DiscoveryResponse]

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


class PortInUseError(OSError):
    """The address cannot be listened on."""


@dataclass(slots=True)
class Stream:
    """One connected client, as `/api/xds` shows it. `told` is the serial of the newest snapshot it was fed."""

    peer: str
    machine: AdsStream
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
        self._streams: dict[int, Stream] = {}
        self._opened = 0
        self._server: grpc.aio.Server | None = None

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

    async def start(self, address: Address) -> int:
        """Listens; returns the port. Raises PortInUseError."""
        server = grpc.aio.server(options=OPTIONS)
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(_Servicer(self), server)
        try:
            port = server.add_insecure_port(str(address))
        except RuntimeError as e:
            raise PortInUseError(str(e)) from None
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float = 0.2) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)

    def publish(self, snapshot: Snapshot) -> None:
        """Makes it the newest. Must not be dangling. Every stream sends what differs for it, in its own time."""
        if self.snapshot is None or snapshot.version != self.snapshot.version:
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

    async def serve(self, context: Context) -> None:
        """One stream, from its first request to its end."""
        serial = self._snapshot.serial
        stream = Stream(context.peer(), AdsStream(self._snapshot.value), serial)
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
            assert isinstance(request, DiscoveryRequest)
            if first:
                stream.node, first = decode_node(request), False
                log.info("Envoy %s connected from %s", stream.node.id, stream.peer)
            async with stream.turn:
                await self._enter(stream, context, decode(request))

    async def _follow(self, stream: Stream, context: Context) -> None:
        while True:
            serial, snapshot = await self._snapshot.after(stream.told)
            assert snapshot is not None  # only the first value is
            async with stream.turn:
                # While this stream waited for its turn there may have come another: only the newest matters.
                serial, snapshot = self._snapshot.serial, self._snapshot.value or snapshot
                stream.told = serial
                await self._enter(stream, context, SnapshotPublished(snapshot))

    async def _enter(self, stream: Stream, context: Context, event: Event) -> None:
        outputs = stream.machine.receive(event)
        stream.late = stream.late and stream.answer(self._snapshot.serial) is Answer.PENDING
        self._progress.set(None)
        for output in outputs:
            match output:
                case Send():
                    self.counts.responses[output.type_url] += 1
                    await context.write(encode(output))
                case Acked():
                    self.counts.acks[output.type_url] += 1
                case Nacked():
                    self.counts.nacks[output.type_url] += 1
                    reason = output.error[:MAX_ERROR_CHARS].replace("\n", " ")
                    log.error("Envoy %s refused %s: %s", stream.node.id, output.type_url.rpartition(".")[2], reason)


class _Servicer:
    """What the generated code calls. Incremental (delta) discovery is answered UNIMPLEMENTED, as gRPC does."""

    def __init__(self, server: AdsServer) -> None:
        self._server = server

    async def StreamAggregatedResources(self, _requests: object, context: Context) -> None:  # noqa: N802
        await self._server.serve(context)

    async def DeltaAggregatedResources(self, _requests: object, context: Context) -> None:  # noqa: N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "delta discovery is not served: use api_type GRPC")
