"""What placement asks about prefix caches. `core.prefix.index` answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from homing.core.placement.load import Place
from homing.core.prefix.prompt import Prompt


class PrefixIndex(Protocol):
    """Estimates, from memory alone: never waits."""

    def held(self, pool_id: str, prompt: Prompt, now: float) -> Mapping[str, int]:
        """Replica id -> tokens of the prompt's beginning that it holds. Who holds nothing is not in it. The tokens are
        on the scale of `prompt.tokens`, so that `prompt.total - held` is what would have to be prefilled."""

    def placed(self, pool_id: str, replica_id: str, prompt: Prompt, now: float) -> None:
        """The replica is about to serve this prompt."""

    def forget(self, place: Place) -> None:
        """The replica is cold (it restarted, perhaps under its old id), or gone."""


class NoPrefixes:
    """Knows nothing."""

    def held(self, pool_id: str, prompt: Prompt, now: float) -> Mapping[str, int]:
        return {}

    def placed(self, pool_id: str, replica_id: str, prompt: Prompt, now: float) -> None:
        pass

    def forget(self, place: Place) -> None:
        pass
