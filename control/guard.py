"""Who may ask the API, and who may write.

With a token (`tokens.admin`) only who shows it may write. Without one the API listens on loopback only, so whoever is
on this machine may; web pages may not. A page of any site can send requests to 127.0.0.1, and can give its own name
that address (DNS rebinding). Browsers say where a request comes from and under which name they sent it; other clients
say nothing, or a loopback name. No page can know a token.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.responses import JSONResponse

from homing.control.tokens import TokenCheck

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
"""Of these anybody may ask: they are for probes and scrapers, and tell nothing of sessions."""

ASKS = frozenset({"/api/plan"})
"""POST, and changes nothing."""

SHOWN = "homing_token_shown"


class Guard:
    """Around the whole API: what is not open needs leave, whatever the route."""

    def __init__(self, app: ASGIApp, tokens: TokenCheck, *, mutual: bool) -> None:
        """`mutual`: everybody who gets here has shown a certificate of ours."""
        self._app = app
        self._tokens = tokens
        self._mutual = mutual

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            authorization = request.headers.get("authorization", "")
            if _writes(request):
                admin = self._tokens.guards_writes and self._tokens.is_admin(authorization)
                if self._tokens.guards_writes and not admin:
                    await _refused("tokens.admin is asked for")(scope, receive, send)
                    return
                scope.setdefault("state", {})[SHOWN] = admin
            elif not self._may_read(request, authorization):
                await _refused("tokens.admin or tokens.fleet is asked for")(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _may_read(self, request: Request, authorization: str) -> bool:
        if self._mutual or request.url.path in OPEN or (request.client and _is_loopback_address(request.client.host)):
            return True
        return self._tokens.is_member(authorization)


def writer(request: Request) -> str:
    """A dependency of every route that writes: who does, for the audit log. Raises HTTPException 403."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if not getattr(request.state, SHOWN, False):
        if not _is_loopback(host):
            raise HTTPException(403, f"the name {host[:100]!r} is not one of this machine's loopback")
        if origin is not None and urlsplit(origin).netloc != host:
            raise HTTPException(403, "a page of another site may not write here")
    return request.client.host if request.client else "unknown"


def _writes(request: Request) -> bool:
    return request.method not in ("GET", "HEAD", "OPTIONS") and request.url.path not in ASKS


def _refused(why: str) -> JSONResponse:
    return JSONResponse({"detail": f"{why} (authorization: Bearer)"}, 401, {"www-authenticate": "Bearer"})


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    return name == "localhost" or _is_loopback_address(name)


def _is_loopback_address(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
