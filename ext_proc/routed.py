"""One request after the picker has looked at it: what the exchange tells Envoy, and the slot that it holds."""

from __future__ import annotations

from typing import Protocol

from homing.core.chat import NotAnObjectError, model_of, with_model
from homing.core.history import Said
from homing.core.placement.home import Decision
from homing.core.placement.load import Place
from homing.core.placement.pools import CompiledPool
from homing.core.prefix.prompt import Prompt
from homing.core.session import SessionKey
from homing.ext_proc.events import BodyAnswer, Reject, SetHeaders

DESTINATION = "x-gateway-destination-endpoint"
NEW_SESSION = "x-homing-new-session"


class Desk(Protocol):
    """What a routed request needs of its picker."""

    def place_said(self, pool: CompiledPool, key: SessionKey, said: Said) -> tuple[SessionKey, Decision | None]:
        """Places by what the body says. The key is the one that it was placed by."""

    def read(self, pool: CompiledPool, key: SessionKey, body: bytes) -> Said:
        """What the body says of its conversation. Raises NotAnObjectError."""

    def sent(self, pool: CompiledPool, decision: Decision, prompt: Prompt, body: bytes) -> None:
        """The prompt goes to where it was placed, in this body."""

    def rejected(self, why: str) -> None: ...

    def release(self, place: Place | None, closing: SessionKey | None) -> None:
        """The request has ended: its slot is given back, a session that was to be closed is forgotten."""


class RoutedRequest:
    """A request that is known by its headers. `closing`: the session to forget once it has ended."""

    __slots__ = ("_closing", "_decision", "_desk", "_expires", "_hint", "_key", "_lesson", "_model", "_pool")

    def __init__(
        self,
        desk: Desk,
        pool: CompiledPool | None,
        decision: Decision | None,
        model: str | None,
        key: SessionKey,
        hint: bytes | None = None,
        closing: SessionKey | None = None,
        expires: bytes | None = None,
        lesson: SetHeaders = (),
    ) -> None:
        self._desk = desk
        self._pool = pool
        self._decision = decision
        self._model = model
        self._key = key
        self._hint = hint
        self._closing = closing
        self._expires = expires
        self._lesson = lesson

    @property
    def set_headers(self) -> SetHeaders:
        return self._told(self._key)

    def _told(self, key: SessionKey) -> SetHeaders:
        return (*_told(self._decision, key, self._expires), *self._lesson)

    @property
    def reroute(self) -> bool:
        """Whether Envoy is to choose the route anew."""
        return False

    @property
    def want_body(self) -> bool:
        """Only a request that names an alias has to be changed."""
        return self._pool is not None and self._model in self._pool.pool.aliases

    def rewrite(self, body: bytes) -> BodyAnswer | Reject:
        """The alias becomes the name that the replicas serve. A hint that the body contradicts is refused: the request
        was routed by it. A body that is no JSON object goes on unchanged; the engine's own error says what is wrong."""
        assert self._pool is not None
        try:
            named = model_of(body)
            if self._hint is not None and named is not None and named not in self._pool.pool.names:
                self._desk.rejected("hint")
                return Reject(400, f"The header x-homing-model says {self._model}, the body says {named}.")
            return BodyAnswer(with_model(body, self._pool.pool.served_name))
        except NotAnObjectError:
            return BodyAnswer()

    def release(self) -> None:
        place, minted = (self._decision.place, self._decision.session) if self._decision else (None, None)
        closing = self._closing.named(minted) if self._closing is not None and minted is not None else self._closing
        self._desk.release(place, closing)


class UnnamedRequest(RoutedRequest):
    """A request whose headers name no session: placed when its body has come, by an id or the history in it."""

    __slots__ = ()

    @property
    def set_headers(self) -> SetHeaders:
        return ()

    @property
    def want_body(self) -> bool:
        return True

    def rewrite(self, body: bytes) -> BodyAnswer | Reject:
        assert self._pool is not None
        answer = super().rewrite(body) if super().want_body else BodyAnswer()
        if isinstance(answer, Reject):
            return answer
        key, self._decision = self._place(self._pool, body)
        if self._closing is not None:
            self._closing = key
        return BodyAnswer(answer.body, self._told(key))

    def _place(self, pool: CompiledPool, body: bytes) -> tuple[SessionKey, Decision | None]:
        try:
            said = self._desk.read(pool, self._key, body)
        except NotAnObjectError:
            said = Said()
        key, decision = self._desk.place_said(pool, self._key, said)
        if said.prompt is not None and decision is not None:
            self._desk.sent(pool, decision, said.prompt, body)
        return key, decision

    def _told(self, key: SessionKey) -> SetHeaders:
        headers = super()._told(key)
        if key is self._key or self._decision is None:
            return headers
        # the body named the session: the answer does too
        return (*headers, ("x-session-id", key.session), ("x-homing-key", key.text))


def _told(decision: Decision | None, key: SessionKey, expires: bytes | None) -> SetHeaders:
    """`expires`: when SageMaker's client is told that its new session ends."""
    if decision is None:
        return ()
    headers: SetHeaders = (
        (DESTINATION, ",".join(decision.endpoints).encode()),
        ("x-homing-decision", decision.reason.encode()),
        ("x-homing-ref", decision.ref.encode()),
    )
    if decision.session is None:
        return headers
    headers = (*headers, ("x-session-id", decision.session), ("x-homing-key", key.prefix + decision.session))
    return (*headers, (NEW_SESSION, decision.session + b"; Expires=" + expires)) if expires is not None else headers
