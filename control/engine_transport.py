"""HTTP to engines, of which some speak TLS: a transport that looks up by the address how each is spoken to.

Whoever asks an engine asks `http://ADDRESS/...`; where the fleet says that the engine there speaks TLS, the request
goes out over TLS, with the authorities of its pool, and its certificate has to bear the name that the fleet says.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from homing.control.certificates import CertificateError, Certificates, Files, client_context, following
from homing.control.membership import Membership
from homing.control.tls import Held
from homing.core.config import Config
from homing.core.config.models import EngineConfig
from homing.core.fleet import Fleet

Known = Callable[[], tuple[Config, Fleet]]
"""The newest file and fleet."""


@dataclass(frozen=True, slots=True)
class Speaks:
    """How an engine speaks TLS: the pool that says so, and the name that its certificate has to bear."""

    pool_id: str
    name: str


@dataclass(slots=True, eq=False)
class EngineTrust:
    """What the engines of a process are trusted by. `troubles`: by address, what is wrong with a certificate."""

    known: Known
    file: Path
    held: list[Held] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)
    _contexts: dict[tuple[str, EngineConfig], ssl.SSLContext] = field(default_factory=dict)
    _fleet: Fleet | None = None
    _secure: Mapping[str, Speaks] = field(default_factory=dict)

    def of(self, address: str) -> Speaks | None:
        """None for one that speaks plain HTTP, or that is not known."""
        _, fleet = self.known()
        if fleet is not self._fleet:
            self._fleet = fleet
            self._secure = {r.address: Speaks(pool.id, r.tls) for pool in fleet.pools for r in pool.replicas if r.tls}
            self.troubles = {address: why for address, why in self.troubles.items() if address in self._secure}
        return self._secure.get(address)

    def context(self, pool_id: str) -> ssl.SSLContext:
        """Raises CertificateError."""
        config, _ = self.known()
        engine = next((pool.engine for pool in config.pools if pool.id == pool_id), EngineConfig())
        if (pool_id, engine) not in self._contexts:
            found = Certificates(f"engine {pool_id}", Files.of(engine, self.file), client_context)
            self.held[:] = [each for each in self.held if each.name != found.name] + [found]
            self._contexts[pool_id, engine] = following(found, server=False)
        return self._contexts[pool_id, engine]


def trust_in(membership: Membership, file: Path) -> EngineTrust:
    """By what the membership knows now."""

    def known() -> tuple[Config, Fleet]:
        view = membership.view
        return view.config, view.fleet

    return EngineTrust(known, file)


class EngineTransport(httpx.AsyncBaseTransport):
    """For one client of engines."""

    def __init__(self, trust: EngineTrust, limits: httpx.Limits = httpx.Limits()) -> None:  # noqa: B008 (frozen)
        self._trust = trust
        self._limits = limits
        # never used for TLS: to load the system's authorities takes 40 ms
        self._plain = httpx.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=limits)
        self._secure: dict[ssl.SSLContext, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.TransportError."""
        address = request.url.netloc.decode("ascii")
        speaks = self._trust.of(address)
        if speaks is None:
            return await self._plain.handle_async_request(request)
        request.url = request.url.copy_with(scheme="https", port=request.url.port or 80)
        request.extensions = {**request.extensions, "sni_hostname": speaks.name}
        try:
            answer = await self._over_tls(speaks.pool_id).handle_async_request(request)
        except CertificateError as error:
            self._trust.troubles[address] = str(error)
            raise httpx.ConnectError(str(error), request=request) from None
        except httpx.TransportError as error:
            if why := certificate_trouble(error):
                self._trust.troubles[address] = why
            raise
        self._trust.troubles.pop(address, None)
        return answer

    @contextlib.asynccontextmanager
    async def get(self, url: str) -> AsyncIterator[httpx.Response]:
        """One GET, without a client around it, which takes a quarter of the time: for what asks each engine every
        second. Raises httpx.TransportError, httpx.InvalidURL."""
        response = await self.handle_async_request(httpx.Request("GET", url))
        try:
            yield response
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        for transport in (self._plain, *self._secure.values()):
            await transport.aclose()

    def _over_tls(self, pool_id: str) -> httpx.AsyncHTTPTransport:
        context = self._trust.context(pool_id)
        if context not in self._secure:
            self._secure[context] = httpx.AsyncHTTPTransport(verify=context, limits=self._limits)
        return self._secure[context]


def certificate_trouble(error: BaseException) -> str:
    """What TLS has against the other side, in its words; empty where that is not why."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not taken: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS fails: {(cause.reason or str(cause)).lower().replace('_', ' ')}"
        cause = cause.__cause__ or cause.__context__
    return ""


def plain() -> EngineTrust:
    """For engines that all speak plain HTTP."""
    known = Config(pools=()), Fleet()
    return EngineTrust(lambda: known, Path())
