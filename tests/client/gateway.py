"""A gateway for the client's tests: a real HTTP server on loopback that names sessions as homing does."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

WAIT_S = 10.0


@dataclass(frozen=True)
class Seen:
    """One request as it arrived. `port` is the client's, so it tells connections apart."""

    method: str
    target: str
    headers: dict[str, str]
    port: int

    @property
    def session(self) -> str | None:
        return self.headers.get("x-session-id")


@dataclass
class Gateway:
    """Answers every request, and every answer names a session: the request's, or `issued-N`.

    `fails` are the statuses of the next answers. `redirect` is where the path /moved leads. `meeting` holds requests
    until as many have arrived. A streamed answer sends its headers and waits for `go_on` before the first chunk.
    """

    server: ThreadingHTTPServer
    seen: list[Seen] = field(default_factory=list)
    fails: list[int] = field(default_factory=list)
    redirect: str = ""
    meeting: threading.Barrier | None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    renames: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    @property
    def sessions(self) -> list[str | None]:
        return [seen.session for seen in self.seen]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    gateway: Gateway

    def do_GET(self) -> None:
        self._handle({})

    def do_POST(self) -> None:
        self._handle(json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"))

    def log_message(self, *args: object) -> None:
        pass

    def _handle(self, body: dict[str, Any]) -> None:
        gateway = self.gateway
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers, self.client_address[1])
        gateway.seen.append(seen)
        session = seen.session or f"issued-{next(gateway.numbers)}"
        session = gateway.renames.get(session, session)
        if gateway.meeting is not None:
            gateway.meeting.wait(WAIT_S)
        if gateway.fails:
            self._answer(gateway.fails.pop(0), session, {"error": {"message": "no"}}, {"retry-after-ms": "1"})
        elif self.path == "/v1/moved":
            self._answer(307, session, {}, {"location": gateway.redirect})
        elif body.get("stream"):
            self._stream(session)
        elif self.command == "GET":
            self._answer(200, session, {"object": "list", "data": []})
        else:
            self._answer(200, session, completion())

    def _answer(self, status: int, session: str, body: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self._head(status, session, {"content-type": "application/json", "content-length": str(len(data))})
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, session: str) -> None:
        self._head(200, session, {"content-type": "text/event-stream", "connection": "close"})
        self.end_headers()
        self.wfile.flush()
        self.gateway.go_on.wait(WAIT_S)
        for event in (json.dumps(chunk("Hello")), json.dumps(chunk(" you")), "[DONE]"):
            self.wfile.write(f"data: {event}\n\n".encode())

    def _head(self, status: int, session: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "x-session-id": session}.items():
            self.send_header(name, value)


def completion() -> dict[str, object]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello you"}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chunk(text: str) -> dict[str, object]:
    choice = {"index": 0, "finish_reason": None, "delta": {"content": text}}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


@contextlib.contextmanager
def serving() -> Iterator[Gateway]:
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.gateway = Gateway(server)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield handler.gateway  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()  # server_close() would wait for connections that clients keep alive
