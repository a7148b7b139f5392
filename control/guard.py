"""Who may write by the API. It listens on loopback only, so whoever is on this machine may; web pages may not.

A page of any site can send requests to 127.0.0.1, and can give its own name that address (DNS rebinding). Browsers say
where a request comes from and under which name they sent it; other clients say nothing, or a loopback name.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import HTTPException, Request


def writer(request: Request) -> str:
    """A dependency of every route that writes: who does, for the audit log. Raises HTTPException 403."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if not _is_loopback(host):
        raise HTTPException(403, f"the name {host[:100]!r} is not one of this machine's loopback")
    if origin is not None and urlsplit(origin).netloc != host:
        raise HTTPException(403, "a page of another site may not write here")
    return request.client.host if request.client else "unknown"


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
