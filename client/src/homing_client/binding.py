"""A client of an HTTP library, or of an SDK built on one, made a conversation's own.

`httpx` and `httpx2` (which newer releases of `openai` use) have the same interface and different classes. Whoever has a
client has imported its library: so nothing is imported here, and the bound client is made by the client's own library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from homing_client.transport import CLOSE_HEADER, AsyncBoundTransport, BoundTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import httpx
    import openai

    from homing_client.conversation import Conversation

ClientT = TypeVar("ClientT")

LIBRARIES = ("httpx", "httpx2")
GOODBYE = {CLOSE_HEADER: "true"}


class _Sdk(Protocol):
    """A client that was generated as openai's is: `copy` changes an option."""

    def copy(self, *, http_client: object) -> object: ...


def bind(client: ClientT, conversation: Conversation) -> ClientT:
    """See `Conversation.bind`."""
    if _library_of(client) is not None:
        return cast(ClientT, _bind_http(client, conversation))
    http_client = _http_client_of(client)
    if _library_of(http_client) is None or not hasattr(client, "copy"):
        raise TypeError(f"expected a client of httpx, httpx2 or openai, not {type(client).__name__}")
    return cast(ClientT, cast(_Sdk, client).copy(http_client=_bind_http(http_client, conversation)))


def say_goodbye(bound: object) -> None:
    """The request that closes the session of a bound client. Raises what the client raises, and TypeError for an async
    client, which would send nothing."""
    if hasattr(_http_client_of(bound), "aclose"):
        raise TypeError("an async client closes a conversation by `await conversation.aclose(client)`")
    if _library_of(bound) is None:
        cast("openai.OpenAI", bound).models.list(extra_headers=GOODBYE)
    else:
        cast("httpx.Client", bound).get("models", headers=GOODBYE).raise_for_status()


async def say_goodbye_async(bound: object) -> None:
    """`say_goodbye`, for async clients."""
    if not hasattr(_http_client_of(bound), "aclose"):
        raise TypeError("a sync client closes a conversation by `conversation.close(client)`")
    if _library_of(bound) is None:
        await cast("openai.AsyncOpenAI", bound).models.list(extra_headers=GOODBYE)
    else:
        (await cast("httpx.AsyncClient", bound).get("models", headers=GOODBYE)).raise_for_status()


def _bind_http(client: object, conversation: Conversation) -> object:
    """A client of the same library with the settings of `client`, on its connections. It costs some 20 microseconds."""
    original = _original(client)
    library = _library_of(original)
    assert library is not None
    make: Callable[..., object]  # of either library, so it is typed here for what it is given
    transport: BoundTransport | AsyncBoundTransport
    if isinstance(original, library.Client):
        make, transport = library.Client, BoundTransport(original, conversation)
    else:
        make, transport = library.AsyncClient, AsyncBoundTransport(cast("httpx.AsyncClient", original), conversation)
    return make(
        transport=transport,
        auth=original.auth,
        base_url=original.base_url,
        cookies=original.cookies,
        event_hooks=original.event_hooks,
        follow_redirects=original.follow_redirects,
        headers=original.headers,
        max_redirects=original.max_redirects,
        params=original.params,
        timeout=original.timeout,
        trust_env=original.trust_env,
    )


def _original(client: object) -> httpx.Client | httpx.AsyncClient:
    """Of a bound client, the one that it was made from: its own transport would speak for its own conversation."""
    http_client = cast("httpx.Client | httpx.AsyncClient", client)
    transport: object = http_client._transport
    return transport.client if isinstance(transport, (BoundTransport, AsyncBoundTransport)) else http_client


def _http_client_of(client: object) -> object:
    """The client itself, or the one inside an SDK's."""
    return client if _library_of(client) is not None else getattr(client, "_client", None)


def _library_of(client: object) -> ModuleType | None:
    loaded = (sys.modules.get(name) for name in LIBRARIES)
    return next((m for m in loaded if m is not None and isinstance(client, (m.Client, m.AsyncClient))), None)
