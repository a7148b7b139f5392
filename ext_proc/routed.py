"""One request after the picker has looked at it: what the exchange tells Envoy, and the slot that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from homing.core.chat import NotAnObjectError
from homing.core.history import Said, header_safe
from homing.core.placement.decision import Decision, Reason
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.prefix.prompt import Prompt
from homing.core.session import SessionKey
from homing.ext_proc.body import Work
from homing.ext_proc.events import BodyAnswer, Reject, SetHeaders
from homing.ext_proc.exchange import Reading
from homing.ext_proc.learning import at_rank
from homing.ext_proc.unread import Unread

DESTINATION = "x-gateway-destination-endpoint"
RANK = "x-data-parallel-rank"
NEW_SESSION = "x-homing-new-session"
POOL = "x-homing-pool"
AT_HOME = ("x-homing-decision", Reason.HOME.encode())
OBSERVED = ("x-homing-decision", "x-homing-ref")
"""Headers that change nothing on a request's way."""


class Desk(Protocol):
    """What a routed request needs of its picker."""

    unread: Unread

    def place_said(
        self, pool: CompiledPool, key: SessionKey, said: Said, size_bytes: int, adapter: str | None
    ) -> tuple[SessionKey, Decision | None]:
        """Places by what the body says. The key is the one that it was placed by."""

    def read(self, pool: CompiledPool, key: SessionKey, body: bytes) -> Said:
        """What the body says of its conversation. Raises NotAnObjectError."""

    def sent(self, pool: CompiledPool, decision: Decision, prompt: Prompt, body: bytes) -> None:
        """The prompt goes to where it was placed, in this body."""

    def release(self, decision: Decision | None, closing: SessionKey | None) -> None:
        """The request has ended: its slot is given back, a session that was to be closed is forgotten."""


class RoutedRequest:
    """A request that is known by its headers. `work`: what is to be done to its body, None for a request of no pool.
    `closing`: the session to forget once it has ended."""

    __slots__ = ("_closing", "_cookie", "_decision", "_desk", "_expires", "_key", "_lesson", "_model", "_pool", "_work")

    def __init__(
        self,
        desk: Desk,
        pool: CompiledPool | None,
        decision: Decision | None,
        model: str | None,
        key: SessionKey,
        work: Work | None = None,
        closing: SessionKey | None = None,
        expires: bytes | None = None,
        lesson: SetHeaders = (),
        cookie: Callable[[bytes], SetHeaders] | None = None,
    ) -> None:
        self._desk = desk
        self._pool = pool
        self._decision = decision
        self._model = model
        self._key = key
        self._work = work
        self._closing = closing
        self._expires = expires
        self._lesson = lesson
        self._cookie = cookie

    @property
    def set_headers(self) -> SetHeaders:
        return (*self._rerouted, *self._shown(self._told(self._key)))

    def _told(self, key: SessionKey) -> SetHeaders:
        rank = self._decision.rank if self._decision is not None else None
        told = (*_told(self._decision, key, self._expires), *at_rank(self._lesson, rank))
        if self._cookie is None or self._decision is None:
            return told
        return (*told, *self._cookie(self._decision.session or key.session))

    @property
    def reroute(self) -> bool:
        """Whether Envoy is to choose the route anew."""
        return self._work is not None and self._work.moved

    @property
    def _rerouted(self) -> SetHeaders:
        """The pool, where Envoy has to be told."""
        return ((POOL, self._pool.pool.id.encode()),) if self.reroute and self._pool is not None else ()

    @property
    def want_body(self) -> bool:
        return self._work is not None and self._work.wanted

    def rewrite(self, body: bytes) -> BodyAnswer | Reject | Reading[BodyAnswer | Reject]:
        work = self._work
        if work is None:
            return BodyAnswer()
        if (wait := work.wait(self._key)) is not None:
            return Reading(wait, lambda: work.rewrite(body, self._key))
        return work.rewrite(body, self._key)

    def _shown(self, headers: SetHeaders) -> SetHeaders:
        """What Envoy gets of a decision: where the pool only observes, no more than its name."""
        if self._work is None or not self._work.plan.observes:
            return headers
        return tuple((name, value) for name, value in headers if name in OBSERVED)

    def release(self) -> None:
        if self._work is not None:
            self._work.close()
        minted = self._decision.session if self._decision else None
        closing = self._closing.named(minted) if self._closing is not None and minted is not None else self._closing
        self._desk.release(self._decision, closing)


class Settled:
    """A request that has gone home, and of which there is no more to be done: nearly every one."""

    __slots__ = ("_decision", "_load", "set_headers")
    want_body = reroute = False

    def __init__(self, load: Load, decision: Decision) -> None:
        self._load = load
        self._decision = decision
        self.set_headers: SetHeaders = (
            (DESTINATION, ",".join(decision.endpoints).encode()),
            AT_HOME,
            ("x-homing-ref", decision.ref.encode()),
            *_ranked(decision),
        )

    def rewrite(self, body: bytes) -> BodyAnswer:
        return BodyAnswer()

    def release(self) -> None:
        self._load.end(self._decision.place, self._decision.uncached, self._decision.tokens)


class UnnamedRequest(RoutedRequest):
    """A request whose headers name no session: placed when its body has come, by an id or the history in it."""

    __slots__ = ("_prompt",)

    @property
    def set_headers(self) -> SetHeaders:
        return self._rerouted

    @property
    def want_body(self) -> bool:
        return True

    def rewrite(self, body: bytes) -> BodyAnswer | Reject | Reading[BodyAnswer | Reject]:
        assert self._pool is not None
        unread = self._desk.unread
        named = self._named_in(body) if unread.anyones is not None else ()
        waits = (unread.of_body(self._pool, named) if named else None, self._unread_texts(body))
        begun = [wait for wait in waits if wait is not None]
        if not begun:
            return self._rewrite(body)
        return Reading(asyncio.gather(*begun) if len(begun) > 1 else begun[0], lambda: self._rewrite(body))

    def _unread_texts(self, body: bytes) -> Awaitable[object] | None:
        """What the session has said to another picker, whether the headers name it or the body."""
        work = self._work
        if work is None or not work.compares:
            return None
        if (wait := work.wait(self._key)) is not None:
            return wait
        named = UnnamedRequest._named_in(self, body)
        return work.wait(named[0], named_in_body=True) if named else None

    def _named_in(self, body: bytes) -> Sequence[SessionKey]:
        """The session that the body names, and what else is to be known before it is placed."""
        assert self._pool is not None
        try:
            said = self._desk.read(self._pool, self._key, body)
        except NotAnObjectError:
            return ()
        return () if said.session is None else (self._key.named(header_safe(said.session)),)

    def _rewrite(self, body: bytes) -> BodyAnswer | Reject:
        assert self._pool is not None
        assert self._work is not None
        self._prompt: Prompt | None = None
        key, self._decision = self._place(self._pool, body)
        if self._closing is not None:
            self._closing = key
        answer = self._work.rewrite(body, key, named_in_body=key is not self._key)
        if isinstance(answer, Reject):
            return answer
        if self._prompt is not None and self._decision is not None:
            self._desk.sent(self._pool, self._decision, self._prompt, answer.body or body)
        return BodyAnswer(answer.body, (*self._shown(self._told(key)), *answer.set_headers))

    def _place(self, pool: CompiledPool, body: bytes) -> tuple[SessionKey, Decision | None]:
        try:
            said = self._desk.read(pool, self._key, body)
        except NotAnObjectError:
            said = Said()
        self._prompt = said.prompt
        return self._desk.place_said(pool, self._key, said, len(body), pool.adapter(self._model))

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
    headers = (*headers, *_ranked(decision))
    if decision.session is None:
        return headers
    headers = (*headers, ("x-session-id", decision.session), ("x-homing-key", key.prefix + decision.session))
    return (*headers, (NEW_SESSION, decision.session + b"; Expires=" + expires)) if expires is not None else headers


def _ranked(decision: Decision) -> SetHeaders:
    return () if decision.rank is None else ((RANK, b"%d" % decision.rank),)
