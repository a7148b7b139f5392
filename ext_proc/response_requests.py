"""Requests to the Responses API: a new response, which may go on from an earlier one, and requests about one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from homing.core import responses
from homing.core.chat import NotAnObjectError
from homing.core.placement.decision import Decision
from homing.core.placement.kept import Kept
from homing.core.placement.pools import CompiledPool
from homing.core.session import SessionKey
from homing.ext_proc.body import Work
from homing.ext_proc.events import BodyAnswer, Reject, SetHeaders
from homing.ext_proc.learning import RESPONSE, lesson
from homing.ext_proc.routed import Desk, RoutedRequest, UnnamedRequest


class ResponsesDesk(Desk, Protocol):
    """What a request for a response needs of its picker beside what all need."""

    kept: Kept

    def refusal(self, pools: Iterable[CompiledPool], tenant: bytes, response_id: bytes) -> Reject | None:
        """Of a response that is another tenant's."""

    def place_after(self, pool: CompiledPool, key: SessionKey, given: bool, previous: bytes) -> Decision | None:
        """Where the response `previous` is kept; None if that is not known."""

    def place_given(self, pool: CompiledPool, key: SessionKey, adapter: str | None) -> Decision | None: ...


class ResponsesRequest(UnnamedRequest):
    """POST /v1/responses: placed when its body has come, even if its headers name the session. Only the replica that
    has the previous response can go on from it."""

    __slots__ = ("_given", "_responses")

    def __init__(
        self,
        desk: ResponsesDesk,
        pool: CompiledPool,
        model: str | None,
        key: SessionKey,
        given: bool,
        work: Work,
        closing: SessionKey | None,
        expires: bytes | None,
        lesson: SetHeaders,
        cookie: Callable[[bytes], SetHeaders] | None,
    ) -> None:
        super().__init__(desk, pool, None, model, key, work, closing, expires, lesson, cookie)
        self._responses = desk
        self._given = given

    def _named_in(self, body: bytes) -> Sequence[SessionKey]:
        """The response that it goes on from, else the session; one that the headers name was looked up before."""
        asked = self._asked(body)
        if asked.previous is not None:
            return self._responses.kept.keys(self._key.tenant, asked.previous)
        return () if self._given else super()._named_in(body)

    def _rewrite(self, body: bytes) -> BodyAnswer | Reject:
        assert self._pool is not None
        previous = self._asked(body).previous
        refusal = self._responses.refusal((self._pool,), self._key.tenant, previous) if previous is not None else None
        return refusal or super()._rewrite(body)

    @staticmethod
    def _asked(body: bytes) -> responses.Asked:
        try:
            return responses.asked(body)
        except NotAnObjectError:
            return responses.Asked(kept=False)

    def _place(self, pool: CompiledPool, body: bytes) -> tuple[SessionKey, Decision | None]:
        asked = self._asked(body)
        if asked.kept:
            self._lesson = (lesson(RESPONSE, self._key.tenant),)
        if asked.previous is not None:
            decision = self._responses.place_after(pool, self._key, self._given, asked.previous)
            if decision is not None:
                return self._key, decision
        if self._given:
            return self._key, self._responses.place_given(pool, self._key, pool.adapter(self._model))
        return super()._place(pool, body)


class ResponseVisit(RoutedRequest):
    """A request about one response, by its path. It names no model: where Envoy has several pools to choose from, the
    picker tells it the pool by a header that no client can set."""

    __slots__ = ()

    @property
    def want_body(self) -> bool:
        return False

    @property
    def reroute(self) -> bool:
        return self._pool is not None
