"""HTTP between NGINX and the picker: cut anywhere, one question after the other, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from picking import Picking

from homing.ext_proc.exchange import Exchange
from homing.ext_proc.nginx_requests import OpenRequests
from homing.ext_proc.nginx_server import MAX_HEAD_BYTES, Questions

HEADERS = (
    b"X-Homing-Request: %b\r\nx-homing-pool: p\r\nx-homing-model: served\r\nx-homing-given: 1\r\n"
    b"x-homing-path: /v1/chat/completions\r\nx-homing-key: /s\r\nx-session-id: s\r\nx-session-id: other\r\n"
    b"x-homing-body-bytes: 9\r\n"
)


def question(request_id: bytes = b"r1", body: bytes = b"") -> bytes:
    head = b"POST /decide HTTP/1.1\r\n" + HEADERS % request_id + b"content-length: %d\r\n\r\n" % len(body)
    return head + body


class Pipe(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


class Served:
    def __init__(self) -> None:
        self.picking = Picking()
        self.requests = OpenRequests(lambda: Exchange(self.picking.picker), lambda: 0.0)
        self.pipe = Pipe()
        self.ended: list[Questions] = []
        self.questions = Questions(self.requests, self.pipe, self.ended.append)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_questions_are_read_however_they_are_cut(size: int) -> None:
    served = Served()
    data = question() + question(b"r2", b"not JSON!") + question(b"r3")
    for start in range(0, len(data), size):
        served.questions.data_received(data[start : start + size])
    assert served.pipe.written.count(b"HTTP/1.1 200 ") == 3
    assert served.pipe.written.count(b"x-homing-replica: gpu-") == 3
    assert (len(served.requests), served.pipe.aborted) == (3, False)


@pytest.mark.parametrize(
    "odd",
    [
        b"GET /decide HTTP/1.1\r\n\r\n",
        b"POST /elsewhere HTTP/1.1\r\n\r\n",
        question().replace(b"content-length: 0", b"content-length: -1"),
        question().replace(b"content-length: 0", b"content-length: 99999999999"),
        question().replace(b"content-length: 0", b"transfer-encoding: chunked"),
        b"x" * (MAX_HEAD_BYTES + 1),
    ],
    ids=["method", "path", "no length", "too large", "chunked", "no end"],
)
def test_what_nginx_does_not_send_ends_the_connection(odd: bytes) -> None:
    served = Served()
    served.questions.data_received(odd)
    assert (served.pipe.aborted, served.pipe.written) == (True, b"")


async def test_the_next_question_waits_for_the_answer_that_has_to_be_read_first() -> None:
    served = Served()
    reading = asyncio.get_running_loop().create_future()

    def first_sight(_: bytes) -> Awaitable[object] | None:
        return reading if not reading.done() else None

    served.picking.picker.unread.mine = first_sight
    served.questions.data_received(question() + question(b"r2"))
    await asyncio.sleep(0)
    assert served.pipe.written == b""
    reading.set_result(None)
    await asyncio.sleep(0.01)
    assert served.pipe.written.count(b"HTTP/1.1 200 ") == 2


async def test_a_connection_that_is_lost_while_the_picker_reads_is_left() -> None:
    served = Served()
    served.picking.picker.unread.mine = lambda _: asyncio.get_running_loop().create_future()
    served.questions.data_received(question())
    served.questions.connection_lost(None)
    await asyncio.sleep(0)
    assert (served.ended, served.pipe.written) == ([served.questions], b"")
