"""What pickers tell each other (`ext_proc.pins`): every 100 ms, and sooner when one has sent much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import inf

from homing.core.placement.home import Placer
from homing.core.prefix.index import Index
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.siblings import soonest_s

TRAVEL_S = 0.002
"""From one to the others."""


class Exchange:
    """All are told alike, at the same moment. Used as: `hurry` before anybody decides, `tick` every 100 ms."""

    def __init__(self, placers: Sequence[Placer]) -> None:
        self._now = 0.0
        self._knowledge = [self._known_to(i, placer) for i, placer in enumerate(placers)]
        self._untold = [knowledge.untold() for knowledge in self._knowledge]
        self._told = [0.0] * len(placers)
        self._due = [inf] * len(placers)
        for i, placer in enumerate(placers):
            placer.load.when_urgent(partial(self._urgent, i))

    def tick(self, now: float) -> None:
        self._tell(range(len(self._knowledge)), now)

    def hurry(self, now: float) -> None:
        """What was urgent has arrived."""
        self._now = now
        self._tell([i for i, due in enumerate(self._due) if due <= now], now)

    def _known_to(self, picker: int, placer: Placer) -> Knowledge:
        prefixes = placer.prefixes if isinstance(placer.prefixes, Index) else Index()
        return Knowledge(f"picker-{picker}", placer.homes, placer.chains, placer.load, prefixes, lambda: self._now)

    def _urgent(self, picker: int) -> None:
        if self._due[picker] == inf:
            soonest = self._told[picker] + soonest_s(self._knowledge[picker].load.replicas)
            self._due[picker] = max(self._now, soonest) + TRAVEL_S

    def _tell(self, pickers: Iterable[int], now: float) -> None:
        self._now = now
        said = [(picker, self._knowledge[picker].message(self._untold[picker])) for picker in pickers]
        for picker, message in said:
            self._told[picker], self._due[picker] = now, inf
            for knowledge in self._knowledge:
                knowledge.take_in(message)
