"""Who may ask a picker's HTTP port about single sessions, or end one: this machine, and who has the shared secret.

The port may be open to a network, for siblings and for metrics. A session's id is enough to end the session, and ids
that clients choose can be guessed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from hmac import compare_digest
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def guarded(routes: Iterable[Route], token: str | None) -> tuple[Route, ...]:
    """The same routes, for others with 401. `token`: None where there is no shared secret."""
    return tuple(Route(route.path, _guarded(route, token), methods=list(route.methods or ())) for route in routes)


def shows(request: Request, token: str) -> bool:
    """Whether it comes with the token."""
    return compare_digest(request.headers.get("authorization", "").encode("latin-1"), f"Bearer {token}".encode())


def _guarded(route: Route, token: str | None) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if _is_here(request) or (token is not None and shows(request, token)):
            answer: Response = await route.endpoint(request)
            return answer
        return PlainTextResponse("from this machine, or with the shared secret's token\n", 401)

    return endpoint


def _is_here(request: Request) -> bool:
    """By a Unix socket or from loopback."""
    if request.client is None or not request.client.host:
        return True
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False
