"""What `/v1/responses` remembers, in process memory as the engine does: a restart forgets it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

Message = Mapping[str, object]  # as the client sent it: a chat template may look at every field


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages up to and with one response, and the response as it was sent."""

    messages: tuple[Message, ...]
    response: bytes


class Conversations:
    """By response id; the one unused longest goes first. vLLM's has no bound."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._known: OrderedDict[str, Conversation] = OrderedDict()

    def get(self, response_id: str) -> Conversation | None:
        found = self._known.get(response_id)
        if found is not None:
            self._known.move_to_end(response_id)
        return found

    def put(self, response_id: str, conversation: Conversation) -> None:
        self._known[response_id] = conversation
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()
