"""Listens to engines' KV events over ZeroMQ, one subscription for each replica (extra `kv`).

What is missing is asked for at the replay port. A connection that breaks may be of an engine that ends, so the replica
is taken to be cold until its events say otherwise. Nothing here fails a request: without events placement knows less.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from homing.core.prefix.index import Index
from homing.core.prefix.stream import Stream, Verdict
from homing.ext_proc.kv_source import Fate, KvCounts, Source
from homing.ext_proc.kv_wire import decode

REPLAY_TIMEOUT_S = 5.0
"""For each answer of a replay."""

HIGH_WATER_MARK = 100_000
END_OF_REPLAY = -1

log = logging.getLogger(__name__)


async def listen(changes: AsyncIterator[frozenset[Source]], index: Index, counts: KvCounts) -> None:
    """To the sources of the newest change, until cancelled."""
    context = zmq.asyncio.Context()
    running: dict[Source, asyncio.Task[None]] = {}
    try:
        async with asyncio.TaskGroup() as tasks:
            async for sources in changes:
                for source in running.keys() - sources:
                    running.pop(source).cancel()
                for source in sources - running.keys():
                    running[source] = tasks.create_task(Subscriber(context, source, index, counts).run())
    finally:
        context.term()


class Subscriber:
    """One replica's events into the index, until cancelled."""

    def __init__(self, context: zmq.asyncio.Context, source: Source, index: Index, counts: KvCounts) -> None:
        self._context = context
        self._source = source
        self._index = index
        self._counts = counts
        self._blocks = index.pool(source.place[0]).blocks
        self._stream = Stream()

    async def run(self) -> None:
        """Ends only where the endpoint is none."""
        with self._context.socket(zmq.SUB) as socket:
            socket.set_hwm(HIGH_WATER_MARK)
            socket.linger = 0
            socket.ipv6 = True
            socket.subscribe(b"")
            monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            try:
                socket.connect(self._source.events)
                await self._receive(socket, monitor)
            except zmq.ZMQError as error:
                log.error("no KV events of %s: %s: %s", self._source.place[1], self._source.events, error)
            finally:
                socket.disable_monitor()
                monitor.close(linger=0)
                self._blocks.forget(self._source.place[1])

    async def _receive(self, socket: zmq.asyncio.Socket, monitor: zmq.asyncio.Socket) -> None:
        poller = zmq.asyncio.Poller()
        poller.register(monitor, zmq.POLLIN)
        poller.register(socket, zmq.POLLIN)
        while True:
            ready: Mapping[zmq.asyncio.Socket, int] = dict(await poller.poll())
            if monitor in ready:
                event = parse_monitor_message(await monitor.recv_multipart())["event"]
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    await self._connected()
                else:
                    self._cold()
            elif socket in ready:
                frames = await socket.recv_multipart()
                if len(frames) == 3 and len(frames[1]) == 8:
                    await self._heard(int.from_bytes(frames[1], "big"), frames[2])
                else:
                    self._count(Fate.MALFORMED)

    async def _connected(self) -> None:
        self._stream = Stream()
        self._blocks.begin(self._source.place[1], complete=False)
        await self._replay()

    def _cold(self) -> None:
        self._index.forget(self._source.place)
        self._blocks.forget(self._source.place[1])

    async def _heard(self, number: int, payload: bytes) -> None:
        verdict = self._stream.heard(number)
        if verdict is Verdict.RESTARTED:
            self._counts.restarts[self._source.place[0]] += 1
            self._cold()
            verdict = self._stream.heard(number)
        if verdict is Verdict.HOLE:
            await self._replay()
            if self._stream.wanted < number:
                self._lost(number)
            verdict = self._stream.heard(number)
        if verdict is Verdict.NEXT:
            await self._apply(number, payload)

    async def _replay(self) -> None:
        """From the first batch that is missing on, as far as the engine has kept them."""
        if not self._source.replay:
            return
        with self._context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.ipv6 = True
            try:
                socket.connect(self._source.replay)
                await socket.send_multipart((b"", self._stream.wanted.to_bytes(8, "big")))
                while (batch := await self._next_of(socket)) is not None:
                    await self._replayed(*batch)
            except (zmq.ZMQError, TimeoutError) as error:
                self._count(Fate.UNANSWERED)
                log.warning("no replay of KV events of %s (%s)", self._source.place[1], type(error).__name__)

    async def _next_of(self, socket: zmq.asyncio.Socket) -> tuple[int, bytes] | None:
        async with asyncio.timeout(REPLAY_TIMEOUT_S):
            *_, number, payload = await socket.recv_multipart()
        start = int.from_bytes(number, "big", signed=True)
        return (start, payload) if start != END_OF_REPLAY else None

    async def _replayed(self, number: int, payload: bytes) -> None:
        verdict = self._stream.replayed(number)
        if verdict is Verdict.HOLE:
            self._lost(number)
            verdict = self._stream.replayed(number)
        if verdict is Verdict.NEXT:
            await self._apply(number, payload)

    def _lost(self, number: int) -> None:
        """What came before will not be known: blocks may have gone unsaid."""
        self._count(Fate.LOST, number - self._stream.wanted)
        self._blocks.begin(self._source.place[1], complete=False)
        self._stream.skip_to(number)

    async def _apply(self, number: int, payload: bytes) -> None:
        pool_id, replica_id = self._source.place
        if number == 0:  # nothing came before it
            self._blocks.begin(replica_id, complete=True)
        try:
            batch = decode(payload)
        except msgspec.DecodeError:
            self._count(Fate.MALFORMED)
            return
        self._count(Fate.APPLIED)
        self._counts.passed_over[pool_id] += batch.passed_over
        for event in batch.events:
            self._blocks.apply(replica_id, event)
            await asyncio.sleep(0)  # a replay is long: requests go first

    def _count(self, fate: Fate, number: int = 1) -> None:
        self._counts.batches[self._source.place[0], fate] += number
