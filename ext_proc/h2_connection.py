"""One HTTP/2 connection of Envoy's: bytes in, events out of ngh2, answers back in the same call. No tasks, no locks.

Bounds. Towards us: nghttp2 gives windows back as data comes, a message is at most MAX_MESSAGE_BYTES, a block of headers
MAX_METADATA_BYTES. From us: a socket that is not read stops the reading of it too; a stream whose answers are not taken
gets no more than MAX_UNSENT_BYTES of them. A bug or a bad message ends its own stream; broken HTTP/2 the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import cast

from ngh2 import (
    Configuration,
    Connection,
    DataReceived,
    NGH2Error,
    RequestReceived,
    Role,
    Setting,
    SettingsReceived,
    StreamClosed,
    TrailersReceived,
)

from homing.ext_proc.calls import Call, Service
from homing.ext_proc.codec import MalformedMessageError
from homing.ext_proc.framing import PREFIX_BYTES, Messages, Status, StatusError, framed, is_one, timeout_s
from homing.ext_proc.transport import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES

RESPONSE = ((b":status", b"200"), (b"content-type", b"application/grpc"))
OK_TRAILERS = ((b"grpc-status", b"0"),)

STREAM_WINDOW_BYTES = 1 << 20
CONNECTION_WINDOW_BYTES = 16 << 20
MAX_UNSENT_BYTES = 1 << 20
WRITE_BYTES = 1 << 20
PREFACE_S = 10.0
"""Whoever has not begun to speak HTTP/2 by then is cut."""

# Envoy resets every stream that it is done with, and opens one for each request: no flood, but how it works.
TRUSTED = Configuration(
    stream_reset_rate_limit=(10**9, 10**9),
    max_inbound_header_list_size=MAX_METADATA_BYTES,
    max_inbound_header_count=256,
    max_continuations=16,
)
SETTINGS = {
    Setting.MAX_CONCURRENT_STREAMS: 1_000_000,
    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
    Setting.MAX_HEADER_LIST_SIZE: MAX_METADATA_BYTES,
}

log = logging.getLogger(__name__)


class H2Stream:
    """One gRPC call on its stream; what `calls.Stream` asks for."""

    __slots__ = ("_connection", "_deadline", "_id", "_responded", "call", "messages")

    def __init__(self, connection: H2Connection, stream_id: int) -> None:
        self._connection = connection
        self._id = stream_id
        self._responded = False
        self._deadline: asyncio.TimerHandle | None = None
        self.messages: Messages | None = None  # made for the few whose messages come in pieces
        self.call: Call | None = None

    def send(self, message: bytes) -> None:
        with contextlib.suppress(NGH2Error):  # the client has reset the stream in the meantime
            self._respond()
            self._connection.h2.send_data(self._id, framed(message))
        self._connection.flush_soon()

    def end(self, status: Status = Status.OK, message: str = "") -> None:
        trailers = OK_TRAILERS if status is Status.OK else _trailers(status, message)
        with contextlib.suppress(NGH2Error):
            if self._responded:
                self._connection.h2.send_trailers(self._id, trailers)
            else:
                self._connection.h2.send_response(self._id, (*RESPONSE, *trailers), end_stream=True)
        self._connection.release(self._id)
        self._connection.flush_soon()

    def failed(self, error: Exception) -> None:
        if isinstance(error, StatusError):
            self.end(error.status, str(error))
        elif isinstance(error, MalformedMessageError):
            self.end(Status.INVALID_ARGUMENT, str(error))
        else:  # a bug ends its own stream only
            log.error("a stream failed", exc_info=error)
            self.end(Status.UNKNOWN, "internal error")

    def ends_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self.end, Status.DEADLINE_EXCEEDED, "took too long")

    def close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self.call is not None:
            self.call.close()

    def _respond(self) -> None:
        h2 = self._connection.h2
        if not self._responded:
            self._responded = True
            h2.send_response(self._id, RESPONSE)
        elif h2.queued_body_size(self._id) > MAX_UNSENT_BYTES:
            raise StatusError(Status.RESOURCE_EXHAUSTED, "answers are not taken")


class H2Connection(asyncio.Protocol):
    """Serves `service`. `connections` is where it is listed while it lives."""

    def __init__(self, service: Service, connections: set[H2Connection]) -> None:
        self.h2 = Connection(Role.SERVER, TRUSTED)
        self._service = service
        self._connections = connections
        self._streams: dict[int, H2Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._reading = False
        self._write_paused = False
        self._preface: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._connections.add(self)
        self._preface = asyncio.get_running_loop().call_later(PREFACE_S, self._transport.abort)
        self.h2.initiate_connection(SETTINGS)
        self.h2.set_local_window_size(CONNECTION_WINDOW_BYTES)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._reading = True  # what is sent meanwhile leaves in one write
        try:
            self.h2.receive_data(data)
            for event in self.h2.events():
                kind = type(event)
                if kind is DataReceived:
                    self._data(event.stream_id, event.data, event.end_stream)  # type: ignore[attr-defined]
                elif kind is RequestReceived:
                    self._request(event)  # type: ignore[arg-type]
                elif kind is StreamClosed:
                    self.release(event.stream_id)  # type: ignore[attr-defined]
                elif kind is TrailersReceived:  # gRPC's clients send none, but may
                    self._data(event.stream_id, b"", True)  # type: ignore[attr-defined]
                elif kind is SettingsReceived and self._preface is not None:
                    self._preface.cancel()
                    self._preface = None
        except NGH2Error as error:  # no HTTP/2, or a peer that broke its rules: the connection is of no use
            log.info("a connection is closed: %s", error)
            self._flush()
            self.cut()
        finally:
            self._reading = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._preface is not None:
            self._preface.cancel()
        for stream_id in tuple(self._streams):
            self.release(stream_id)

    def pause_writing(self) -> None:
        """The peer does not read. Then nothing is read from it either, so that its answers do not pile up here."""
        self._write_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._flush()

    async def drain(self) -> None:
        """GOAWAY; returns once the streams that are open have ended. Those that last end now."""
        with contextlib.suppress(NGH2Error):
            self.h2.send_shutdown_notice()  # what the peer has sent before it reads this is still served
        for stream in tuple(self._streams.values()):
            if stream.call is not None and stream.call.lasting:
                stream.end(Status.UNAVAILABLE, "the picker ends")
        self._flush()
        if self._streams:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def cut(self) -> None:
        with contextlib.suppress(NGH2Error):
            self.h2.send_goaway()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def release(self, stream_id: int) -> None:
        """The stream is over for us. Twice does no harm."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.close()
            if self._idle is not None and not self._streams and not self._idle.done():
                self._idle.set_result(None)

    def flush_soon(self) -> None:
        if not self._reading:
            self._flush()

    def _request(self, event: RequestReceived) -> None:
        path, deadline_s = b"", None
        for name, value in event.headers:
            if name == b":path":
                path = value
            elif name == b"grpc-timeout":
                deadline_s = timeout_s(value)
        stream = H2Stream(self, event.stream_id)
        open_call = self._service.method(path)
        if open_call is None:
            stream.end(Status.UNIMPLEMENTED, "unknown method")
            return
        self._streams[event.stream_id] = stream
        stream.call = open_call(stream)
        if deadline_s is not None:
            stream.ends_in(deadline_s)
        if event.end_stream:
            self._data(event.stream_id, b"", True)

    def _data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:  # ended by us before
            return
        assert stream.call is not None
        try:
            if stream.messages is None and is_one(data):
                stream.call.receive(data[PREFIX_BYTES:])
            elif data:
                stream.messages = stream.messages or Messages(MAX_MESSAGE_BYTES)
                for message in stream.messages.feed(data):
                    stream.call.receive(message)
                    if stream_id not in self._streams:
                        return
            if end_stream and stream_id in self._streams:
                stream.call.half_close()
        except Exception as error:
            stream.failed(error)

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        while not self._write_paused and not transport.is_closing():
            out = self.h2.data_to_send(WRITE_BYTES)
            if out:
                transport.write(out)
            if len(out) < WRITE_BYTES:
                return


def _trailers(status: Status, message: str) -> tuple[tuple[bytes, bytes], ...]:
    text = message.encode("ascii", "replace").translate(None, b"\r\n\0")
    return ((b"grpc-status", b"%d" % status), (b"grpc-message", text))
