"""One request as a client sends it, on a connection of its own, with its answer read as it comes and checked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import h11
import msgspec

SESSION = b"x-session-id"


class AskedError(Exception):
    """There is no whole, right answer; the message says why."""


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_CHUNK = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True)
class Answer:
    """`first_s` is the clock's when the first token came."""

    first_s: float = 0.0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    text: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    done: bool = False
    _rest: bytes = b""

    @property
    def replica(self) -> str:
        """The sim's own word, whatever the gateway says."""
        return self.headers.get(b"x-sim-replica", b"").decode()

    @property
    def session(self) -> str:
        return self.headers.get(SESSION, b"").decode()

    def take(self, data: bytes) -> None:
        """Raises AskedError for what is no event of an answer."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: "):
                continue
            if line == b"data: [DONE]":
                self.done = True
                continue
            try:
                chunk = _CHUNK.decode(line[6:])
            except msgspec.DecodeError:
                raise AskedError("an event that is none") from None
            self.text += "".join(choice.delta.content or "" for choice in chunk.choices)
            if chunk.usage is not None:
                details = chunk.usage.prompt_tokens_details
                self.prompt_tokens = chunk.usage.prompt_tokens
                self.cached_tokens = (details.cached_tokens or 0) if details else 0


async def ask(
    port: int, body: bytes, session: str | None, answer: Answer, heard: asyncio.Future[str] | None = None
) -> None:
    """Reads into `answer`. Raises AskedError, OSError. `heard` is told the session's id as soon as there is one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await _exchange(reader, writer, _request(port, body, session), answer, heard)
    except h11.RemoteProtocolError as error:
        raise AskedError(f"HTTP: {error}") from None
    finally:
        writer.close()


def _request(port: int, body: bytes, session: str | None) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    headers: list[tuple[bytes, bytes]] = [
        (b"host", f"127.0.0.1:{port}".encode()),
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if session is not None:
        headers.append((SESSION, session.encode()))
    head = connection.send(h11.Request(method="POST", target="/v1/chat/completions", headers=headers))
    return (head or b"") + body


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: bytes,
    answer: Answer,
    heard: asyncio.Future[str] | None,
) -> None:
    writer.write(request)
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("connection", "close")]))
    connection.send(h11.EndOfMessage())
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Response):
            answer.headers = dict(iter(event.headers))
            if event.status_code != 200:
                raise AskedError(f"status {event.status_code}")
            if heard is not None and not heard.done():
                heard.set_result(answer.session)
        elif isinstance(event, h11.Data):
            answer.first_s = answer.first_s or time.perf_counter()
            answer.take(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            if not answer.done:
                raise AskedError("the end of the answer is missing")
            return
        else:
            raise AskedError("the connection ended")
