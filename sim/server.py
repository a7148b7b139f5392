"""One process: options in, a listening replica out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from homing.sim.app import build_app
from homing.sim.chat_template import ChatTemplate
from homing.sim.driver import Driver
from homing.sim.engines import EngineOptions, build_engine
from homing.sim.metrics import Metrics
from homing.sim.replica import Identity, Replica
from homing.sim.tokenizer import ByteTokenizer
from homing.sim.words import WordModel

SHUTDOWN_GRACE_S = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The command's flags, but for where it listens. `time_scale`: simulated seconds in a real one."""

    replica_id: str
    model: str
    engine: EngineOptions
    seed: int = 0
    time_scale: float = 1.0
    chat_template: str | None = None  # its text
    adds_bos: bool = False


def build_replica(options: Options) -> Replica:
    """Must be called on the loop that will serve it. Raises OptionError."""
    tokenizer = ByteTokenizer()
    engine, max_model_len = build_engine(options.engine)
    metrics = Metrics(engine, options.model, max_model_len)
    return Replica(
        identity=Identity(options.replica_id, options.model, max_model_len),
        tokenizer=tokenizer,
        template=ChatTemplate() if options.chat_template is None else ChatTemplate(options.chat_template),
        words=WordModel(tokenizer, options.seed),
        driver=Driver(engine, metrics, time_scale=options.time_scale),
        metrics=metrics,
        adds_bos=options.adds_bos,
    )


class Server(uvicorn.Server):
    """Ends on SIGTERM and SIGINT with status 0: uvicorn's own would raise the signal again."""

    def __init__(self, config: uvicorn.Config, driver: Driver) -> None:
        super().__init__(config)
        self._driver = driver

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        """Short answers may still end well; then the others are ended, before uvicorn would cancel them."""
        self.should_exit = True
        asyncio.get_running_loop().call_later(SHUTDOWN_GRACE_S, self._driver.close)


async def serve(options: Options, listener: socket.socket) -> None:
    """Until a signal. `listener` is bound; it may listen already. Raises OptionError."""
    replica = build_replica(options)
    config = uvicorn.Config(
        build_app(replica),
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        backlog=4096,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    host, port = listener.getsockname()[:2]
    log.info("replica %s serves %s on %s:%d", options.replica_id, options.model, host, port)
    await Server(config, replica.driver).serve([listener])
