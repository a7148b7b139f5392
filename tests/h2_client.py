"""A client of plain HTTP/2 frames, for the rudeness that gRPC's own does not allow."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from ngh2 import Configuration, Connection, DataReceived, ResponseReceived, Role, StreamClosed, TrailersReceived

from homing.ext_proc.framing import Messages
from homing.ext_proc.transport import EXT_PROC

LIMIT_S = 10.0
MAX_BYTES = 1 << 30


def grpc_headers(path: str = f"/{EXT_PROC}/Process", **more: str) -> tuple[tuple[bytes, bytes], ...]:
    fields = {":method": "POST", ":scheme": "http", ":authority": "picker", ":path": path, "te": "trailers"}
    fields |= {"content-type": "application/grpc"} | {name.replace("_", "-"): value for name, value in more.items()}
    return tuple((name.encode(), value.encode()) for name, value in fields.items())


class Frames:
    """The client's end of a connection without a socket: what it says as bytes, what it heard by stream."""

    def __init__(self) -> None:
        self.h2 = Connection(Role.CLIENT, Configuration(peer_max_concurrent_streams=1_000_000))
        self.h2.initiate_connection({4: 1 << 24})
        self.h2.set_local_window_size(1 << 30)
        self.statuses: dict[int, bytes] = {}
        self.closed: set[int] = set()
        self.messages: defaultdict[int, list[bytes]] = defaultdict(list)
        self._partial: dict[int, Messages] = {}

    def open(self, *, end_stream: bool = False, path: str = f"/{EXT_PROC}/Process", **more: str) -> int:
        return self.h2.send_request(grpc_headers(path, **more), end_stream=end_stream)

    def hear(self, data: bytes) -> None:
        self.h2.receive_data(data)
        for event in self.h2.events():
            match event:
                case ResponseReceived(stream_id=stream, headers=fields) | TrailersReceived(stream, fields):
                    found = dict(fields).get(b"grpc-status")
                    if found is not None:
                        self.statuses[stream] = found
                case DataReceived(stream_id=stream, data=content):
                    partial = self._partial.setdefault(stream, Messages(MAX_BYTES))
                    self.messages[stream] += partial.feed(content)
                case StreamClosed(stream_id=stream):
                    self.closed.add(stream)

    def said(self) -> bytes:
        return self.h2.data_to_send()


class Client(Frames):
    """The same on a Unix socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, path: Path) -> Client:
        return cls(*await asyncio.open_unix_connection(str(path)))

    async def flush(self) -> None:
        """Waits for no room: who waits to write and does not read meanwhile may wait for ever."""
        self.writer.write(self.said())
        await asyncio.sleep(0)

    async def until_messages(self, stream: int, count: int = 1) -> list[bytes]:
        async with asyncio.timeout(LIMIT_S):
            await self.flush()
            while len(self.messages[stream]) < count:
                data = await self.reader.read(1 << 20)
                assert data, "the connection has ended"
                self.hear(data)
                await self.flush()
        return self.messages[stream]

    async def close(self) -> None:
        self.writer.transport.abort()
