"""How `homing up` knows that a child is ready. A probe answers yes or no, and never raises: no answer is a no."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass

import httpx

from homing.cli.child import Probe
from homing.core.config import Address

TIMEOUT_S = 1.0


def reachable(address: Address) -> Address:
    """Where to connect to what listens on `address`: every host is also this one."""
    return {"0.0.0.0": Address("127.0.0.1", address.port), "::": Address("::1", address.port)}.get(
        address.host, address
    )


@dataclass(frozen=True, slots=True)
class Answers:
    """GET `path` is answered with 200 at `address` (`unix:/path` or `host:port`)."""

    address: str
    path: str
    tls: ssl.SSLContext | None = None  # None: plain text

    async def __call__(self) -> bool:
        answer = await get(self.address, self.path, self.tls)
        return answer is not None and answer.status_code == httpx.codes.OK


@dataclass(frozen=True, slots=True)
class Accepts:
    """A TCP connection is accepted."""

    address: Address

    async def __call__(self) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                _, writer = await asyncio.open_connection(self.address.host, self.address.port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True


@dataclass(frozen=True, slots=True)
class Every:
    """All of them say yes, asked in order until one does not."""

    probes: tuple[Probe, ...]

    async def __call__(self) -> bool:
        for probe in self.probes:
            if not await probe():
                return False
        return True


@dataclass(frozen=True, slots=True)
class Asks:
    """Envoy, by its admin address, asks every picker that is ready (`pickers`: their HTTP addresses), and one at least.

    With none that is ready it is not: Envoy may have started first, and would place by its hash until it has found one.
    """

    admin: str
    pickers: tuple[str, ...]

    async def __call__(self) -> bool:
        ready = sum([await Answers(picker, "/readyz")() for picker in self.pickers])
        stats = await get(self.admin, "/stats?filter=^cluster.homing-pickers.membership_healthy$")
        asked = stats.text.rpartition(": ")[2].strip() if stats is not None else ""
        return asked.isdigit() and int(asked) >= max(ready, 1)


async def get(address: str, path: str, tls: ssl.SSLContext | None = None) -> httpx.Response | None:
    """One GET on a connection of its own; None without an answer. No proxy of the environment is asked."""
    socket = address.removeprefix("unix:")
    host = "localhost" if socket != address else address
    scheme = "http" if tls is None else "https"
    # verify=False: nothing is encrypted then, and reading the certificates takes longer than the request
    transport = httpx.AsyncHTTPTransport(uds=socket if socket != address else None, verify=tls or False)
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=TIMEOUT_S) as client:
        try:
            return await client.get(f"{scheme}://{host}{path}")
        except httpx.HTTPError:
            return None
