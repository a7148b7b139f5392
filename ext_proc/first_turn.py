"""The first turn of a session that its client has named: its prompt may be held somewhere already.

Later turns go home by their headers alone; only here is a body worth reading, once for each session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from homing.core.placement.decision import Decision
from homing.core.placement.home import Placer
from homing.core.placement.minting import looks_minted
from homing.core.placement.pools import CompiledPool
from homing.core.prefix.prompt import Prompt
from homing.core.session import SessionKey
from homing.ext_proc.body import Work
from homing.ext_proc.events import SetHeaders
from homing.ext_proc.routed import Desk, UnnamedRequest

FIRST_PROMPT_BYTES = 4_096
"""Of a body: what is shorter saves less by being found than its reading is worth."""


def worth_reading(placer: Placer, pool: CompiledPool, key: SessionKey, size_bytes: int, now: float) -> bool:
    """Whether a body of that size is read to place a session that its client has named: its first, and long enough for
    a part of it to be worth finding in a cache. A session whose id is one of ours has a home."""
    return (
        placer.scales.settings(pool.pool.id).read_first
        and size_bytes >= FIRST_PROMPT_BYTES
        and not looks_minted(key.session)
        and placer.unknown(pool, key, now) is not None
    )


class FirstDesk(Desk, Protocol):
    """What a first turn needs of its picker beside what all need."""

    def place_first(
        self, pool: CompiledPool, key: SessionKey, body: bytes, adapter: str | None
    ) -> tuple[Prompt | None, Decision | None]:
        """Where most of the prompt is held, all else being equal; and what the prompt is, if there is one."""


class FirstTurn(UnnamedRequest):
    """Placed when its body has come, by the id in its headers and the prompt."""

    __slots__ = ("_first",)

    def __init__(
        self,
        desk: FirstDesk,
        pool: CompiledPool,
        model: str | None,
        key: SessionKey,
        work: Work,
        closing: SessionKey | None,
        expires: bytes | None,
        lesson: SetHeaders,
        cookie: Callable[[bytes], SetHeaders] | None,
    ) -> None:
        super().__init__(desk, pool, None, model, key, work, closing, expires, lesson, cookie)
        self._first = desk

    def _named_in(self, body: bytes) -> Sequence[SessionKey]:
        """Nothing: the headers name the session, which was looked up by them."""
        return ()

    def _place(self, pool: CompiledPool, body: bytes) -> tuple[SessionKey, Decision | None]:
        self._prompt, decision = self._first.place_first(pool, self._key, body, pool.adapter(self._model))
        return self._key, decision
