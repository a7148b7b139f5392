"""HTTP to a picker, over TCP or a Unix socket."""

from __future__ import annotations

import asyncio
import ssl

import httpx

TIMEOUT_S = 0.5


def client(address: str, tls: ssl.SSLContext | None) -> httpx.AsyncClient:
    """For `unix:/path` or `host:port`, there over TLS unless it is None. Without a time limit of its own: callers bound
    each question."""
    if address.startswith("unix:"):
        transport = httpx.AsyncHTTPTransport(uds=address.removeprefix("unix:"))
        return httpx.AsyncClient(transport=transport, base_url="http://picker", timeout=None)
    if tls is not None:
        return httpx.AsyncClient(base_url=f"https://{address}", verify=tls, timeout=None, trust_env=False)
    return httpx.AsyncClient(base_url=f"http://{address}", timeout=None, trust_env=False)


async def fetch(
    client: httpx.AsyncClient, path: str, timeout_s: float, max_bytes: int, method: str = "GET"
) -> bytes | None:
    """The body of the answer; None where there was none in time, or it is too long."""
    try:
        async with asyncio.timeout(timeout_s), client.stream(method, path) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > max_bytes:
                    return None
            return bytes(body)
    except (httpx.HTTPError, TimeoutError):
        return None
