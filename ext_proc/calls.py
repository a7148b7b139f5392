"""What a gRPC stream is about: an exchange, Envoy's access log, a question about health. No HTTP/2 here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from homing.ext_proc import codec
from homing.ext_proc.backlog import Backlog
from homing.ext_proc.codec import Decoder
from homing.ext_proc.events import Event, Later
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.framing import Status, StatusError
from homing.ext_proc.health import Health
from homing.ext_proc.transport import EXT_PROC, HEALTH, OUTCOMES, Finished, OpenExchange

MAX_WAITING = 4
"""Messages of one stream that may wait for an answer that comes later. Envoy sends one and waits."""


class Stream(Protocol):
    """The way back to the client."""

    def send(self, message: bytes) -> None: ...

    def end(self, status: Status = Status.OK, message: str = "") -> None:
        """Nothing is sent after it."""

    def failed(self, error: Exception) -> None:
        """Ends with the status that fits the error."""


class Call(Protocol):
    """One stream. Methods raise StatusError and MalformedMessageError to end it with another status than OK."""

    lasting: bool
    """Open for as long as its client likes: nothing that a shutdown waits for."""

    def receive(self, message: bytes) -> None: ...

    def half_close(self) -> None:
        """The client has said all."""

    def close(self) -> None:
        """The stream is over, however it ended. Called once."""


class Exchanged:
    """ext_proc: every message has one answer, in order."""

    __slots__ = ("_decode", "_exchange", "_half_closed", "_stream", "_wait", "_waiting")
    lasting = False

    def __init__(self, stream: Stream, exchange: Exchange, decode: Callable[[bytes], Event] = codec.decode) -> None:
        self._stream = stream
        self._exchange = exchange
        self._decode = decode
        self._waiting: list[bytes] | None = None  # made for the few that need it
        self._wait: asyncio.Future[object] | None = None
        self._half_closed = False

    def receive(self, message: bytes) -> None:
        if self._wait is not None:
            self._queue(message)
            return
        exchange = self._exchange
        answer = exchange.receive(self._decode(message))
        if type(answer) is Later:
            self._await(answer)
            return
        self._stream.send(codec.encode(answer))  # type: ignore[arg-type]
        if exchange.over:
            self._stream.end()

    def half_close(self) -> None:
        self._half_closed = True
        if self._wait is None:
            self._stream.end()

    def close(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.cancel()
        self._exchange.close()

    def _await(self, later: Later) -> None:
        self._wait = asyncio.ensure_future(later.wait)
        self._wait.add_done_callback(lambda waited: self._resume(later, waited))

    def _queue(self, message: bytes) -> None:
        if self._waiting is None:
            self._waiting = []
        if len(self._waiting) >= MAX_WAITING:
            raise StatusError(Status.RESOURCE_EXHAUSTED, "too many messages before an answer")
        self._waiting.append(message)

    def _resume(self, later: Later, waited: asyncio.Future[object]) -> None:
        if self._wait is not waited:  # the stream is over
            return
        self._wait = None
        try:
            waited.result()
            self._stream.send(codec.encode(later.resume()))
            while self._waiting and self._wait is None:
                self.receive(self._waiting.pop(0))
            if self._half_closed and self._wait is None:
                self._stream.end()
        except Exception as error:
            self._stream.failed(error)


class Outcomes:
    """A batch of Envoy's access log."""

    __slots__ = ("_backlog", "_stream")
    lasting = False

    def __init__(self, stream: Stream, backlog: Backlog) -> None:
        self._stream = stream
        self._backlog = backlog

    def receive(self, message: bytes) -> None:
        self._backlog.take(message)
        self._stream.send(b"")  # ExportLogsServiceResponse: all of it was taken
        self._stream.end()

    def half_close(self) -> None:
        raise StatusError(Status.INVALID_ARGUMENT, "the batch is missing")

    def close(self) -> None:
        pass


class HealthCheck:
    __slots__ = ("_health", "_stream")
    lasting = False

    def __init__(self, stream: Stream, health: Health) -> None:
        self._stream = stream
        self._health = health

    def receive(self, message: bytes) -> None:
        serving = self._health.serving(codec.decode_health(message))
        if serving is None:
            raise StatusError(Status.NOT_FOUND, "unknown service")
        self._stream.send(codec.encode_health(serving))
        self._stream.end()

    def half_close(self) -> None:
        raise StatusError(Status.INVALID_ARGUMENT, "a question is missing")

    def close(self) -> None:
        pass


class HealthWatch:
    """Says the state at once and at every change, until the client has enough."""

    __slots__ = ("_health", "_stream", "_unwatch")
    lasting = True

    def __init__(self, stream: Stream, health: Health) -> None:
        self._stream = stream
        self._health = health
        self._unwatch: Callable[[], None] | None = None

    def receive(self, message: bytes) -> None:
        if self._unwatch is not None:
            raise StatusError(Status.INVALID_ARGUMENT, "one question is enough")
        self._unwatch = self._health.watch(
            codec.decode_health(message), lambda serving: self._stream.send(codec.encode_health(serving))
        )

    def half_close(self) -> None:
        if self._unwatch is None:
            raise StatusError(Status.INVALID_ARGUMENT, "a question is missing")

    def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch()


class Service:
    """All that is served on one address: the method's path says what a stream is about."""

    __slots__ = ("_methods", "backlog")

    def __init__(self, open_exchange: OpenExchange, finished: Finished, health: Health) -> None:
        self.backlog = Backlog(finished)
        decode = Decoder().decode
        self._methods: dict[bytes, Callable[[Stream], Call]] = {
            f"/{EXT_PROC}/Process".encode(): lambda stream: Exchanged(stream, open_exchange(), decode),
            f"/{OUTCOMES}/Export".encode(): lambda stream: Outcomes(stream, self.backlog),
            f"/{HEALTH}/Check".encode(): lambda stream: HealthCheck(stream, health),
            f"/{HEALTH}/Watch".encode(): lambda stream: HealthWatch(stream, health),
        }

    def method(self, path: bytes) -> Callable[[Stream], Call] | None:
        return self._methods.get(path)
