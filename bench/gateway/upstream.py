"""Replicas that cost as little as they can: one process, a port for each, one answer made beforehand.

`python -m bench.gateway.upstream PORT...`. A request with `x-bench-stream: EVENTS INTERVAL_MS` is answered by so many
server-sent events. GETs are answered with what the peers ask their workers for.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

from bench.gateway.wire import BODY_END, DONE, EVENT, MODEL

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"%b","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"%b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":500,"completion_tokens":50,'
    b'"total_tokens":550},"served_by":"%03d"' + BODY_END
)
_ABOUT = (
    b'{"status":"ok","object":"list","data":[{"id":"%b","object":"model"}],"model_path":"%b","served_model_name":"%b",'
    b'"tokenizer_path":"","is_generation":true,"tp_size":1,"dp_size":1,"version":"1","internal_states":[]}'
) % (MODEL, MODEL, MODEL)
_SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STREAM = b"x-bench-stream: "


def _whole(body: bytes) -> bytes:
    return _HEAD % (len(body), body)


class Replica(asyncio.Protocol):
    def __init__(self, number: int) -> None:
        self._answer = _whole(_ANSWER % (MODEL, b"word " * 40, number))
        self._transport: asyncio.Transport | None = None
        self._left = 0  # of the body
        self._head = b""
        self._streams: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._streams:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
            if self._left == 0:
                self._respond()
            return
        if self._head:
            data = self._head + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            return
        self._head = data[: end + 2]
        at = self._head.find(b"ontent-length: ") - 1  # NGINX writes a capital
        if at < 0:
            at = self._head.find(b"ontent-Length: ") - 1
        length = int(self._head[at + 16 : self._head.index(b"\r", at)]) if at > 0 else 0
        self._left = length - (len(data) - end - 4)
        if self._left == 0:
            self._respond()

    def _respond(self) -> None:
        assert self._transport is not None
        head, self._head = self._head, b""
        if head.startswith(b"GET"):
            self._transport.write(_whole(_ABOUT))
        elif (at := head.find(_STREAM)) > 0:
            events, interval_ms = map(int, head[at + len(_STREAM) : head.index(b"\r", at)].split())
            task = asyncio.get_running_loop().create_task(self._stream(events, interval_ms / 1e3))
            self._streams.add(task)
            task.add_done_callback(self._streams.discard)
        else:
            self._transport.write(self._answer)

    async def _stream(self, events: int, interval_s: float) -> None:
        assert self._transport is not None
        self._transport.write(_SSE)
        for _ in range(events):
            self._transport.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
            await asyncio.sleep(interval_s)
        self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))


async def _serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for number, port in enumerate(ports):

        def replica(number: int = number) -> Replica:
            return Replica(number)

        await loop.create_server(replica, "127.0.0.1", port, backlog=4_096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve([int(port) for port in sys.argv[1:]]))
