"""The filter over nghttp2: gRPC on plain HTTP/2 streams, without gRPC's machinery in between.

Why there are two transports, and what becomes of this one if `ngh2` is abandoned: docs/decisions/.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

from homing.control.http_server import refuse_served
from homing.ext_proc.calls import Service
from homing.ext_proc.h2_connection import H2Connection
from homing.ext_proc.health import Health
from homing.ext_proc.transport import Finished, OpenExchange

BACKLOG = 1_024


class H2Transport:
    """`address` is `unix:/path` or `host:port`, there over TLS unless `tls` is None."""

    def __init__(
        self, address: str, open_exchange: OpenExchange, finished: Finished, tls: ssl.SSLContext | None = None
    ) -> None:
        self._tls = tls
        self._address = address
        self._socket = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
        self._health = Health()
        self._service = Service(open_exchange, finished, self._health)
        self._connections: set[H2Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self._socket is not None:
            refuse_served(self._socket)
        try:
            self._server = await self._listen(asyncio.get_running_loop())
        except OSError as error:
            raise OSError(f"cannot listen on {self._address}") from error

    async def set_serving(self, serving: bool) -> None:
        self._health.set_serving(serving)

    @property
    def connected(self) -> bool:
        return bool(self._connections)

    async def stop(self, grace_s: float) -> None:
        self._health.set_serving(False)
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s), asyncio.TaskGroup() as draining:
                for connection in self._connections:
                    draining.create_task(connection.drain())
        for connection in tuple(self._connections):
            connection.cut()
        self._service.backlog.tell_all()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> asyncio.Server:
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
            return await loop.create_unix_server(self._connection, str(self._socket), backlog=BACKLOG)
        host, _, port = self._address.rpartition(":")
        return await loop.create_server(self._connection, host.strip("[]"), int(port), backlog=BACKLOG, ssl=self._tls)

    def _connection(self) -> H2Connection:
        return H2Connection(self._service, self._connections)
