"""What carries exchanges between Envoy and the picker: `server_grpc` and `server_h2` are the two that do.

Each serves ext_proc, the access log and gRPC health on one address, and behaves alike: tests/ext_proc/test_server.py
runs against both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from homing.ext_proc import codec
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.outcomes import Outcome

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
ACCESS_LOG = "envoy.service.accesslog.v3.AccessLogService"
HEALTH = "grpc.health.v1.Health"

LIVENESS = "liveness"
"""The process answers; the other names of the health service say that it can decide."""

READINESS = ("", "readiness", EXT_PROC)
"""Envoy asks for ""."""

MAX_MESSAGE_BYTES = 80 << 20
"""Envoy buffers at most 64 MiB of body; headers and framing come on top."""

MAX_METADATA_BYTES = 128 << 10

ASKED_S = 2.0
"""A picker that has not been asked to decide for so long gives up Envoy's access log."""

log = logging.getLogger(__name__)

OpenExchange = Callable[[], Exchange]
Finished = Callable[[Outcome], None]


class Transport(Protocol):
    """What carries exchanges. `start` raises OSError when the address cannot be had."""

    async def start(self) -> None: ...

    async def set_serving(self, serving: bool) -> None: ...

    async def stop(self, grace_s: float) -> None:
        """Takes no new streams, lets the open ones end for `grace_s` seconds, then cuts them."""


class OutcomeReader:
    """Envoy's access log, message by message."""

    __slots__ = ("_asked_at", "_finished")

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self._asked_at = -ASKED_S

    def asked(self) -> None:
        """Envoy has just asked this picker to decide."""
        self._asked_at = time.monotonic()

    def read(self, data: bytes) -> bool:
        """One StreamAccessLogsMessage. Whether to go on with the stream: Envoy keeps the one it has, also to a standby
        that it no longer asks; ended, it is opened anew where Envoy asks."""
        try:
            outcomes = codec.decode_outcomes(data)
        except codec.MalformedMessageError as error:
            log.warning("an access log message that cannot be read: %s", error)
            return True
        for outcome in outcomes:
            self._finished(outcome)
        return time.monotonic() - self._asked_at <= ASKED_S
