"""A table some of whose hosts are down: a data plane that keeps them among the hash's points passes over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from homing.core.hashing.table import Table


class Passing:
    """`table` over all hosts, seen as one over those that are up: `ups` are their places in `table`, in order."""

    __slots__ = ("_places", "_table")

    def __init__(self, table: Table, ups: Sequence[int]) -> None:
        self._table = table
        self._places = {host: place for place, host in enumerate(ups)}

    def owner(self, key: bytes) -> int | None:
        first = self._table.owner(key)
        place = self._places.get(first) if first is not None else None
        return place if place is not None else next(self.walk(key), None)

    def walk(self, key: bytes) -> Iterator[int]:
        return (self._places[host] for host in self._table.walk(key) if host in self._places)
