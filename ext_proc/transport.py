"""What carries exchanges between Envoy and the picker: `server_grpc` and `server_h2` are the two that do.

Each serves ext_proc, Envoy's access log (as OpenTelemetry has it) and gRPC health on one address, and behaves alike:
tests/ext_proc/test_server.py and test_server_faults.py run against both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from homing.ext_proc.exchange import Exchange
from homing.ext_proc.outcomes import Outcome

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
OUTCOMES = "opentelemetry.proto.collector.logs.v1.LogsService"
HEALTH = "grpc.health.v1.Health"

LIVENESS = "liveness"
"""The process answers; the other names of the health service say that it can decide."""

READINESS = ("", "readiness", EXT_PROC)
"""Envoy asks for ""."""

MAX_MESSAGE_BYTES = 80 << 20
"""Envoy buffers at most 64 MiB of body; headers and framing come on top."""

MAX_METADATA_BYTES = 128 << 10

OpenExchange = Callable[[], Exchange]
Finished = Callable[[Outcome], None]


class Transport(Protocol):
    """What carries exchanges. `start` raises OSError when the address cannot be had."""

    async def start(self) -> None: ...

    async def set_serving(self, serving: bool) -> None: ...

    @property
    def connected(self) -> bool:
        """Whether somebody may be asking; true where that is not known."""

    async def stop(self, grace_s: float) -> None:
        """Takes no new streams, lets the open ones end for `grace_s` seconds, then cuts them."""
