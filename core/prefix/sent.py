"""What pickers tell each other of the prompts that they have sent: their beginnings, since those are what is shared."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Annotated

import msgspec

from homing.core.journal import ReplicaId
from homing.core.prefix.prompt import Prompt

MAX_TOLD = 16
"""Marks of one prompt: a system text of 16,000 tokens. What comes later is hardly anybody else's."""

MAX_NEWS = 2_000
"""Prompts that wait for one listener. Beyond, the oldest are not told: a prefill more, where they are wanted."""

_Mark = Annotated[int, msgspec.Meta(ge=0)]
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class SentPrompt(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A prompt's beginning that a replica was sent. `marks` and `tokens` as of a Prompt."""

    pool: Annotated[str, msgspec.Meta(max_length=128)]
    replica: ReplicaId
    marks: Annotated[tuple[_Mark, ...], msgspec.Meta(max_length=MAX_TOLD)]
    tokens: Annotated[tuple[_Tokens, ...], msgspec.Meta(max_length=MAX_TOLD)]

    @classmethod
    def of(cls, pool_id: str, replica_id: str, prompt: Prompt) -> SentPrompt:
        return cls(pool_id, replica_id, prompt.marks[:MAX_TOLD], prompt.tokens[:MAX_TOLD])

    @property
    def prompt(self) -> Prompt | None:
        """None for what no prompt can be."""
        tokens = self.tokens
        if len(self.marks) != len(tokens) or any(b < a for a, b in pairwise(tokens)):
            return None
        return Prompt(self.marks, tokens)


class SentNews:
    """Prompts of which one listener is still to be told."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[SentPrompt] = deque(maxlen=MAX_NEWS)

    def __len__(self) -> int:
        return len(self._pending)

    def note(self, sent: SentPrompt) -> None:
        self._pending.append(sent)

    def take(self, at_most: int) -> list[SentPrompt]:
        """The first `at_most`; they are not pending any more."""
        return [self._pending.popleft() for _ in range(min(at_most, len(self._pending)))]

    def again(self, unheard: Sequence[SentPrompt]) -> None:
        """They were not heard. What was noted meanwhile is newer, and stays where there is no room for both."""
        room = MAX_NEWS - len(self._pending)
        self._pending.extendleft(islice(reversed(unheard), room))
