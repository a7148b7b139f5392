"""A replica that keeps what it is sent: the bytes of each body, as they arrive behind Envoy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.http_serving import answering


class Echo(ThreadingHTTPServer):
    """`bodies` in the order in which they came."""

    daemon_threads = True

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Echo

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self._answer(b'{"choices":[]}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


@contextlib.contextmanager
def echo() -> Iterator[Echo]:
    server = Echo()
    with answering(server):
        yield server
