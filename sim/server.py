"""One process: options in, a listening replica out; and its lives, for a restarted replica has forgotten everything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from jinja2 import TemplateSyntaxError
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from homing.sim.admin import build_admin
from homing.sim.app import build_app
from homing.sim.chat_template import ChatTemplate
from homing.sim.driver import Driver
from homing.sim.engine import Engine
from homing.sim.engines import EngineOptions, OptionError, build_engine
from homing.sim.faults import Faults, Faulty
from homing.sim.kv_events import EventFormat, EventLog, KvEventsConfig
from homing.sim.metrics import Metrics
from homing.sim.replica import Identity, Replica
from homing.sim.tokenizer import ByteTokenizer, Tokenizer
from homing.sim.words import WordModel

SHUTDOWN_GRACE_S = 0.5
BACKLOG = 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The command's flags, but for where it listens. `time_scale`: simulated seconds in a real one."""

    replica_id: str
    model: str
    engine: EngineOptions
    seed: int = 0
    time_scale: float = 1.0
    stream_interval: int = 1
    chat_template: str | None = None  # its text
    tokenizer: Path | None = None  # a tokenizer.json, or a model's directory
    adds_bos: bool = False
    kv_events: KvEventsConfig = field(default_factory=KvEventsConfig)
    kv_events_format: EventFormat = EventFormat.MAP
    certificate: Path | None = None  # with its key: HTTPS
    certificate_key: Path | None = None
    client_authorities: Path | None = None  # who connects has to show a certificate of theirs


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError, or OverflowError for a port that is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class Server(uvicorn.Server):
    """Signals are the process's, not each server's; uvicorn's own would also raise them again at the end."""

    def __init__(self, app: ASGIApp, options: Options | None = None) -> None:
        """`options`: for TLS."""
        super().__init__(
            uvicorn.Config(
                app,
                ssl_certfile=options.certificate if options else None,
                ssl_keyfile=options.certificate_key if options else None,
                ssl_ca_certs=str(options.client_authorities) if options and options.client_authorities else None,
                ssl_cert_reqs=ssl.CERT_REQUIRED if options and options.client_authorities else ssl.CERT_NONE,
                http="h11",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                backlog=BACKLOG,
                timeout_graceful_shutdown=2,
                server_header=False,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def transport(self, client: object) -> asyncio.Transport | None:
        """The connection of an ASGI scope's `client`."""
        for connection in self.server_state.connections:
            if isinstance(connection, H11Protocol) and connection.client == client:
                return connection.transport
        return None

    def drop(self) -> None:
        """End now, with every connection, as a killed process does."""
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            if isinstance(connection, H11Protocol):
                connection.transport.abort()
        self.should_exit = self.force_exit = True


class Life:
    """From one start of the replica to its end."""

    def __init__(self, options: Options, faults: Faults) -> None:
        """Raises OptionError."""
        config = options.kv_events
        tokenizer, template = _texts(options)
        engine, max_model_len = build_engine(options.engine, record_events=config.enable_kv_cache_events)
        metrics = Metrics(
            engine, options.model, max_model_len, time.time(), prefix_caching=options.engine.prefix_caching
        )
        self.driver = Driver(engine, metrics, time_scale=options.time_scale)
        self._publisher = None
        if config.enable_kv_cache_events:
            from homing.sim.kv_publisher import KvPublisher, PublisherError

            event_log = EventLog(options.engine.block_size, options.kv_events_format, config.buffer_steps)
            try:
                self._publisher = KvPublisher(config, event_log)
            except PublisherError as error:
                raise OptionError(f"--kv-events-config: {error}") from None
            self.driver.on_cache_events = self._publisher.publish
        replica = Replica(
            identity=Identity(options.replica_id, options.model, max_model_len),
            tokenizer=tokenizer,
            template=template,
            words=WordModel(tokenizer, options.seed),
            driver=self.driver,
            metrics=metrics,
            stream_interval=options.stream_interval,
        )
        app = Faulty(build_app(replica), faults, lambda client: self.server.transport(client))
        self.server = Server(app, options)

    def close(self) -> None:
        self.driver.close()
        if self._publisher is not None:
            self._publisher.close()


def _texts(options: Options) -> tuple[Tokenizer, ChatTemplate]:
    """The tokenizer, and the template that goes with it. Raises OptionError."""
    if options.tokenizer is None:
        return ByteTokenizer(adds_bos=options.adds_bos), _template(options.chat_template)
    from homing.sim.file_tokenizer import FileTokenizer, read_model_files

    try:
        tokenizer, files = FileTokenizer(options.tokenizer), read_model_files(options.tokenizer)
    except (OSError, ValueError) as error:
        raise OptionError(f"--tokenizer: {error}") from None
    source = files.chat_template if options.chat_template is None else options.chat_template
    return tokenizer, _template(source, files.special_tokens)


def _template(source: str | None, special_tokens: dict[str, str] | None = None) -> ChatTemplate:
    try:
        return ChatTemplate(source, special_tokens)
    except TemplateSyntaxError as error:
        raise OptionError(f"--chat-template: line {error.lineno}: {error.message}") from None


class Process:
    """The lives of one replica, one after another, and what the admin port may do to it."""

    def __init__(self, options: Options) -> None:
        """Raises OptionError. Must be made on the loop that will serve it."""
        self.faults = Faults()
        self.life = 1
        self._options = options
        self._current = Life(options, self.faults)
        self._stopping = asyncio.Event()
        self._down_s = 0.0

    @property
    def slowdown(self) -> float:
        return self.engine.slowdown

    @property
    def engine(self) -> Engine:
        """This life's."""
        return self._current.driver.engine

    def slow_down(self, factor: float) -> None:
        self._current.driver.engine.slowdown = factor

    def lose_cache(self) -> None:
        self._current.driver.lose_cache()

    def restart(self, down_s: float) -> None:
        self._down_s = max(down_s, 0.0)
        self._current.server.drop()

    def stop(self) -> None:
        """Short answers may still end well; then the others are ended, before uvicorn would cancel them."""
        self._stopping.set()
        self._current.server.should_exit = True
        self.faults.set(None)
        asyncio.get_running_loop().call_later(SHUTDOWN_GRACE_S, self._current.driver.close)

    async def run(self, listener: socket.socket) -> None:
        """Until `stop`. `listener` is bound."""
        address = listener.getsockname()[:2]
        while True:
            log.info("replica %s serves %s on %s:%d", self._options.replica_id, self._options.model, *address)
            await self._current.server.serve([listener])
            self._current.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._down_s)
            if self._stopping.is_set():
                return
            self.life += 1
            self._current = Life(self._options, self.faults)
            listener = bind(*address)


async def serve(options: Options, listener: socket.socket, admin: socket.socket | None = None) -> None:
    """Until a signal. The sockets are bound; they may listen already. Raises OptionError."""
    process = Process(options)
    servers = [Server(build_admin(process))] if admin is not None else []

    def stop() -> None:
        process.stop()
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if admin is not None:
        log.info("admin on %s:%d", *admin.getsockname()[:2])
    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(server.serve([admin] if admin is not None else None))
        await process.run(listener)
