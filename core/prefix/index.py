"""What placement is told of prefix caches, pool by pool."""

from __future__ import annotations

from collections.abc import Mapping

from homing.core.placement.load import Place
from homing.core.prefix.placed import PlacedPrompts
from homing.core.prefix.prompt import Prompt


class Index:
    """Implements `core.placement.prefix.PrefixIndex`."""

    __slots__ = ("_placed",)

    def __init__(self) -> None:
        self._placed: dict[str, PlacedPrompts] = {}

    def held(self, pool_id: str, prompt: Prompt, now: float) -> Mapping[str, int]:
        placed = self._placed.get(pool_id)
        if placed is None:
            return {}
        return {replica_id: prompt.tokens[count - 1] for replica_id, (count, _) in placed.held(prompt).items()}

    def placed(self, pool_id: str, replica_id: str, prompt: Prompt, now: float) -> None:
        self._pool(pool_id).put(replica_id, prompt, now)

    def resize(self, place: Place, capacity_tokens: int) -> None:
        """How much the replica's cache holds, as its engine says."""
        self._pool(place[0]).resize(place[1], capacity_tokens)

    def forget(self, place: Place) -> None:
        if (placed := self._placed.get(place[0])) is not None:
            placed.forget(place[1])

    def _pool(self, pool_id: str) -> PlacedPrompts:
        placed = self._placed.get(pool_id)
        if placed is None:
            placed = self._placed[pool_id] = PlacedPrompts()
        return placed
