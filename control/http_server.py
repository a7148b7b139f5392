"""An HTTP server inside a process that does other things too: control's API, a picker's health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    import ssl

    from starlette.applications import Starlette

GRACE_S = 1
BACKLOG = 256


@contextlib.contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    """A listening socket for `unix:/path` or `host:port`. Raises OSError.

    A Unix socket that nobody serves any more is replaced, and removed at the end.
    """
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        refuse_served(path)
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
            bound.listen(BACKLOG)
            try:
                yield bound
            finally:
                path.unlink(missing_ok=True)
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, int(port)), family=family, backlog=BACKLOG) as bound:
            yield bound


def refuse_served(path: Path) -> None:
    """Raises OSError if another process answers on the Unix socket at `path`: two would silently take turns."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise OSError(f"unix:{path} is in use")


class HttpServer(uvicorn.Server):
    """`serve([socket])` until `should_exit`. Leaves the signals to the process that it is a part of. `protocol`: in
    place of uvicorn's own for HTTP; `tls`: None for plain text."""

    def __init__(
        self,
        application: Starlette,
        protocol: type[asyncio.Protocol] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            application,
            http=protocol or "auto",
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()  # which would set the next
        config.ssl = tls
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
