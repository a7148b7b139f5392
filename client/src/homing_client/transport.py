"""The transport of a bound client: the id onto each request, and from each answer.

At the transport every attempt and every redirect is seen by itself, and a streamed answer at its headers. Everything
that a client does above it (authentication, redirects, hooks, cookies, decoding) works as before; everything below it
(connections, proxies, limits) is the original client's.

`httpx` and `httpx2` have the same interface and different classes, and neither asks a transport for its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from homing_client.conversation import Conversation, Turn

SESSION_HEADER = "x-session-id"
CLOSE_HEADER = "x-session-close"

_ORIGIN = "homing_client.origin"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class BoundTransport:
    """Sends a conversation's requests over the connections of `client`."""

    client: httpx.Client
    conversation: Conversation

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        turn = _prepare(request, self.client, self.conversation)
        # Not public, and in every release of both libraries: it is what chooses between a client's proxies.
        response = self.client._transport_for_url(request.url).handle_request(request)
        _learn(turn, request, response)
        return response

    def close(self) -> None:
        """The connections are the original client's, and other conversations'."""

    def __enter__(self) -> BoundTransport:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class AsyncBoundTransport:
    """`BoundTransport`, for async clients."""

    client: httpx.AsyncClient
    conversation: Conversation

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        turn = _prepare(request, self.client, self.conversation)
        response = await self.client._transport_for_url(request.url).handle_async_request(request)
        _learn(turn, request, response)
        return response

    async def aclose(self) -> None:
        """The connections are the original client's, and other conversations'."""

    async def __aenter__(self) -> AsyncBoundTransport:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _prepare(
    request: httpx.Request, client: httpx.Client | httpx.AsyncClient, conversation: Conversation
) -> Turn | None:
    """The request carries the conversation's id, or none. None, and no id, where a redirect left the gateway."""
    if client.is_closed:
        raise RuntimeError("the client that this one is bound to has been closed")
    # A redirect's request inherits the extensions, so the first request's origin is known at every hop.
    if not _may_follow(request.extensions.setdefault(_ORIGIN, request.url), request.url):
        request.headers.pop(SESSION_HEADER, None)
        request.headers.pop(CLOSE_HEADER, None)
        return None
    turn = conversation.begin_turn()
    if turn.id is None:
        request.headers.pop(SESSION_HEADER, None)
    else:
        request.headers[SESSION_HEADER] = turn.id
    return turn


def _learn(turn: Turn | None, request: httpx.Request, response: httpx.Response) -> None:
    """An answer that failed neither begins a session nor ends one, and only a POST begins one: a gateway names a
    session in every answer, also in a list of models."""
    if turn is None or not response.is_success:
        return
    if request.headers.get(CLOSE_HEADER, "").lower() == "true":
        turn.closed()
    elif request.method == "POST":
        turn.answered(response.headers.get(SESSION_HEADER))


def _may_follow(first: httpx.URL, url: httpx.URL) -> bool:
    """The same origin, or its https: where httpx, too, leaves the Authorization header on a redirected request."""
    if first.host != url.host:
        return False
    if (first.scheme, _port(first)) == (url.scheme, _port(url)):
        return True
    return (first.scheme, _port(first), url.scheme, _port(url)) == ("http", 80, "https", 443)


def _port(url: httpx.URL) -> int | None:
    return url.port or _DEFAULT_PORTS.get(url.scheme)
