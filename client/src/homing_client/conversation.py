"""A conversation and its session id. No I/O here, and no HTTP library: `binding` brings both.

The id is a value that answers may change, and answers arrive in any order. So a turn remembers the state that it began
with, and its answer counts only while that state still holds (compare and swap):
- of several first turns at once, the first answer names the session, and the others leave it as it is;
- a gateway that answers with another id (one that it renewed) is followed;
- an answer that arrives after `close` does not bring the session back.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from homing_client import binding

ClientT = TypeVar("ClientT")

_log = logging.getLogger("homing_client")


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """Compared by identity: a session that was closed is not the same nothing as before it began."""

    id: str | None = field(repr=False)


class Conversation:
    """One conversation: begins without an id, keeps the one that its first answer brings. Safe among threads and tasks.

    `id` continues a stored conversation; None, empty and `NEW_SESSION` begin a new one.
    Raises ValueError for an id that no header can carry (anything but visible ASCII and spaces inside).
    """

    __slots__ = ("_lock", "_state")

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        if not id or id.upper() == "NEW_SESSION":
            id = None  # noqa: A001
        elif not _fits_a_header(id):
            raise ValueError("a session id consists of visible ASCII characters")
        self._state = _State(id)
        self._lock = Lock()

    @property
    def id(self) -> str | None:
        """The session's id, to be stored with the conversation's messages. None before the first answer's headers."""
        return self._state.id

    def bind(self, client: ClientT) -> ClientT:
        """`client` as this conversation's own: the same settings and the same connections, and every request carries
        the id. Cheap: bind once a conversation, or once a request.

        `client` is an `openai` client (or another of that make), or an `httpx` or `httpx2` one, sync or async; what
        comes back is a plain client of that library, since a subclass of `httpx.Client` may have any constructor.
        Cookies that a bound client is given stay with it. Close `client` itself at the end: closing a bound one closes
        no connection. Raises TypeError for anything else.
        """
        return binding.bind(client, self)

    def close(self, client: object) -> None:
        """Tells the gateway that the session is over, and forgets the id. Without an id it does nothing.

        One request, `GET models` below the base URL of `client` (sync, bound or not), with `x-session-close: true`.
        Raises what `client` raises; the id is still there then. What is never closed ends by its idle time.
        """
        if self.id is not None:
            binding.say_goodbye(self.bind(client))

    async def aclose(self, client: object) -> None:
        """`close`, through an async client."""
        if self.id is not None:
            await binding.say_goodbye_async(self.bind(client))

    def begin_turn(self) -> Turn:
        """For transports: what one request is to carry, and where to tell what its answer said."""
        return Turn(self, self._state)

    def _swap(self, before: _State, after: str | None) -> bool:
        """False where `before` no longer holds."""
        with self._lock:
            if self._state is not before:
                return False
            if before.id != after:
                self._state = _State(after)
            return True

    def __repr__(self) -> str:
        """Without the id: whoever has it can speak in the session."""
        return f"<Conversation {'new' if self.id is None else 'begun'}>"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation, from its headers to its answer's."""

    _conversation: Conversation
    _began_with: _State

    @property
    def id(self) -> str | None:
        return self._began_with.id

    def answered(self, session_id: str | None) -> None:
        """The turn succeeded, and its answer named this session."""
        if not session_id or not _fits_a_header(session_id):
            return
        if self._conversation._swap(self._began_with, session_id):
            return
        if self.id is None and self._conversation.id not in (None, session_id):
            _log.warning("two first turns at once: the later answer's session is left to its idle time")

    def closed(self) -> None:
        """The turn succeeded, and was the last."""
        self._conversation._swap(self._began_with, None)


def _fits_a_header(value: str) -> bool:
    """RFC 9110, section 5.5: visible ASCII, and spaces inside."""
    return value.isascii() and value.isprintable() and value == value.strip()
