"""The order in which things were last used, without an object for each: what a large table is evicted by."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Recency:
    """Numbered slots in the order of use: a ring linked by two arrays, 8 bytes a slot. Slots start at 1 and are used
    again after `remove`; slot 0 is the ring's end. All operations take constant time."""

    __slots__ = ("_after", "_before", "_free")

    def __init__(self) -> None:
        self._before = array("i", (0,))
        self._after = array("i", (0,))
        self._free: list[int] = []

    def __iter__(self) -> Iterator[int]:
        """The longest unused first. Must not be changed meanwhile."""
        after = self._after
        slot = after[0]
        while slot:
            yield slot
            slot = after[slot]

    def oldest(self) -> int:
        """The longest unused; 0 when there is none."""
        return self._after[0]

    def add(self) -> int:
        """A slot, as the one used last."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._after)
            self._before.append(0)
            self._after.append(0)
        self._link(slot)
        return slot

    def renew(self, slot: int) -> None:
        """Used again: now the last. For every request, so without further calls."""
        before, after = self._before, self._after
        following = after[slot]
        if not following:
            return
        previous = before[slot]
        after[previous] = following
        before[following] = previous
        last = before[0]
        after[last] = slot
        before[slot] = last
        after[slot] = 0
        before[0] = slot

    def remove(self, slot: int) -> None:
        self._unlink(slot)
        self._free.append(slot)

    def _link(self, slot: int) -> None:
        before, after = self._before, self._after
        last = before[0]
        after[last] = slot
        before[slot] = last
        after[slot] = 0
        before[0] = slot

    def _unlink(self, slot: int) -> None:
        before, after = self._before, self._after
        previous, following = before[slot], after[slot]
        after[previous] = following
        before[following] = previous
