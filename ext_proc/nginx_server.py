"""NGINX's questions on the picker's HTTP port, beside what others ask there.

NGINX keeps connections that carry nothing but questions: one whose first request is a question is taken from uvicorn
and served here, at a fraction of the cost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from homing.core.config import Address
from homing.ext_proc import nginx_log
from homing.ext_proc.decide import Reply, Waiting, decide
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.nginx_requests import OpenRequests
from homing.ext_proc.picker import Picker

MAX_HEAD_BYTES = 1 << 20
MAX_BODY_BYTES = 65 << 20
"""NGINX's own limits are 512 KiB and 64 MiB; the script adds a little to either."""

_BEGINS = b"POST /decide HTTP/1.1"


@contextlib.asynccontextmanager
async def for_nginx(
    picker: Picker, log: Address | None, clock: Callable[[], float]
) -> AsyncIterator[type[H11Protocol] | None]:
    """How the HTTP port serves, while NGINX's access log comes in at `log`; as usual without. Raises OSError when that
    address cannot be had."""
    if log is None:
        yield None
        return
    requests = OpenRequests(lambda: Exchange(picker), clock)

    def ended(line: nginx_log.Line) -> None:
        # every picker hears of every request of NGINX's: it counts those that it decided about, and learns from all
        if line.learn:
            nginx_log.learn(line, picker)
        if requests.close(line.request):
            picker.finished(nginx_log.outcome(line))

    async with nginx_log.listening(log, ended):
        yield serving(requests)


def serving(requests: OpenRequests) -> type[H11Protocol]:
    """uvicorn's protocol, but for NGINX's connections."""

    class Serving(H11Protocol):
        asked = False

        def data_received(self, data: bytes) -> None:
            if self.asked or not data.startswith(_BEGINS):
                self.asked = True
                super().data_received(data)
                return
            self._unset_keepalive_if_required()
            connections = cast("set[object]", self.connections)  # those that the server ends
            connections.discard(self)
            questions = Questions(requests, self.transport, connections.discard)
            connections.add(questions)
            self.transport.set_protocol(questions)
            questions.data_received(data)

    return Serving


class Questions(asyncio.Protocol):
    """One connection of NGINX's: a question, its answer, the next. `ended` when it is lost.

    The peer is NGINX, which has parsed the request before and tells its length: of HTTP/1.1 no more is read than that
    (RFC 9112, 6.3), and all else ends the connection.
    """

    def __init__(
        self, requests: OpenRequests, transport: asyncio.Transport, ended: Callable[[Questions], None]
    ) -> None:
        self.transport = transport
        self._requests = requests
        self._ended = ended
        self._data = bytearray()
        self._seen = 0
        self._head: dict[str, bytes] | None = None
        self._left = 0
        self._waiting: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._data += data
        while self._data and self._waiting is None and not self.transport.is_closing():
            if self._head is None and not self._read_head():
                return
            if len(self._data) < self._left or self._head is None:
                return
            headers, body = self._head, bytes(self._data[: self._left])
            del self._data[: self._left]
            self._head, self._left = None, 0
            self._answer(headers, body)

    def _read_head(self) -> bool:
        """Whether it has come whole."""
        end = self._data.find(b"\r\n\r\n", self._seen)
        if end < 0:
            self._seen = max(0, len(self._data) - 3)
            if len(self._data) > MAX_HEAD_BYTES:
                self.transport.abort()
            return False
        first, *lines = bytes(self._data[:end]).split(b"\r\n")
        del self._data[: end + 4]
        self._seen = 0
        self._head = {}
        for line in lines:
            name, _, value = line.partition(b":")
            self._head.setdefault(name.lower().decode("latin-1"), value.strip(b" \t"))
        length = self._head.get("content-length", b"0")
        if not first.startswith(_BEGINS) or "transfer-encoding" in self._head or not length.isdigit():
            self.transport.abort()
            return False
        self._left = int(length)
        if self._left > MAX_BODY_BYTES:
            self.transport.abort()
        return True

    def _answer(self, headers: dict[str, bytes], body: bytes) -> None:
        step = decide(self._requests, headers, body)
        if isinstance(step, Reply):
            self._write(step)
        else:
            self._waiting = asyncio.get_running_loop().create_task(self._wait(step))

    async def _wait(self, step: Reply | Waiting) -> None:
        while isinstance(step, Waiting):
            await step.wait
            step = step.resume()
        self._waiting = None
        self._write(step)
        self.data_received(b"")

    def _write(self, reply: Reply) -> None:
        lines = b"".join([b"%b: %b\r\n" % (name.encode("latin-1"), value) for name, value in reply.headers])
        head = b"HTTP/1.1 %d\x20\r\n%bcontent-length: %d\r\n\r\n" % (reply.status, lines, len(reply.body))
        self.transport.write(head + reply.body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._ended(self)

    def shutdown(self) -> None:
        """The server ends."""
        self.transport.close()
