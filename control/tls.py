"""The certificates of one process: those of its listeners, and what it shows when it connects."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from homing.control.certificates import Certificates, Files, client_context, following, server_context
from homing.core.config.tls import ListenerName, ServerTls, Tls

if TYPE_CHECKING:
    import grpc


class Held(Protocol):
    """Certificates, as metrics and the API show them."""

    name: str
    trouble: str
    expires_s: float | None

    def newest(self) -> object: ...


class Holder(Protocol):
    """Whoever has certificates."""

    @property
    def held(self) -> Sequence[Held]: ...


class ProcessTls:
    """Raises CertificateError wherever there is nothing good to begin with."""

    def __init__(self, said: Tls, file: Path) -> None:
        """`file`: the one that says so."""
        self.held: list[Held] = []
        self._said = said
        self._file = file
        self._client: ssl.SSLContext | None = None

    def server(self, listener: ListenerName, alpn: tuple[str, ...] = ()) -> ssl.SSLContext | None:
        """None where the listener is to speak plain text."""
        said = self._of(listener)
        if said is None:
            return None
        files = Files.of(said, self._file)
        found = Certificates(listener, files, lambda files: server_context(files, alpn))
        self.held.append(found)
        return following(found, server=True)

    def grpc_server(self, listener: ListenerName) -> grpc.ServerCredentials | None:
        """The same for gRPC's own library."""
        said = self._of(listener)
        if said is None:
            return None
        from homing.control.grpc_certificates import configuration, credentials

        found = Certificates(listener, Files.of(said, self._file), configuration)
        self.held.append(found)
        return credentials(found, asks_clients=said.client_ca is not None)

    def client(self) -> ssl.SSLContext:
        """For connections to other processes of homing's. The same one each time."""
        if self._client is None:
            said = self._said.client
            found = Certificates("client", Files.of(said, self._file), client_context)
            self.held.append(found)
            self._client = following(found, server=False, server_name=said.server_name)
        return self._client

    def scheme(self, listener: ListenerName) -> str:
        """Of URLs that lead to the listener."""
        return "http" if self._of(listener) is None else "https"

    def asks_clients(self, listener: ListenerName) -> bool:
        said = self._of(listener)
        return said is not None and said.client_ca is not None

    def _of(self, listener: ListenerName) -> ServerTls | None:
        found: ServerTls | None = getattr(self._said, listener)
        return found


@dataclass(frozen=True, slots=True)
class CertificateCollector(Collector):
    """Metrics of certificates, by what they are for."""

    holders: Sequence[Holder]

    def collect(self) -> Iterable[Metric]:
        good = GaugeMetricFamily("homing_certificate_good", "Whether what is on the disk is used.", labels=["use"])
        expires = GaugeMetricFamily(
            "homing_certificate_expires_timestamp_seconds", "When the one in use runs out.", labels=["use"]
        )
        for held in (each for holder in self.holders for each in tuple(holder.held)):
            held.newest()
            good.add_metric([held.name], float(not held.trouble))
            if held.expires_s is not None:
                expires.add_metric([held.name], held.expires_s)
        yield from (good, expires)
