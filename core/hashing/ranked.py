"""Hosts of several places each: the data plane's hash finds the host, a second hash of the same key the place there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xxhash import xxh64_intdigest

from homing.core.hashing.table import Table

RANK_SEED = 1
"""Another hash than that of the hosts, else all keys of one host would have a few of its places."""


class Ranked:
    """`table` over hosts, seen as one over the places that they have: `places` of each host, in the table's order."""

    __slots__ = ("_places", "_table")

    def __init__(self, table: Table, places: Sequence[Sequence[int]]) -> None:
        self._table = table
        self._places = places

    def owner(self, key: bytes) -> int | None:
        host = self._table.owner(key)
        if host is None:
            return None
        places = self._places[host]
        return places[xxh64_intdigest(key, RANK_SEED) % len(places)] if len(places) > 1 else places[0]

    def walk(self, key: bytes) -> Iterator[int]:
        """All places of a host, then those of the next."""
        hashed = xxh64_intdigest(key, RANK_SEED)
        for host in self._table.walk(key):
            places = self._places[host]
            first = hashed % len(places)
            yield from places[first:]
            yield from places[:first]
