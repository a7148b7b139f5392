"""Envoy's hash, bit for bit, so that a picker and an Envoy on its own send a session to the same replica.

Sources: Envoy `source/extensions/load_balancing_policies/ring_hash/ring_hash_lb.cc` (Ring::Ring, chooseHost),
`.../maglev/maglev_lb.cc`, `.../common/thread_aware_lb_impl.cc` (normalizeHostWeights). The order of the floating
point operations is theirs: with unequal weights another order would place some points elsewhere.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Protocol

from xxhash import xxh64_intdigest

POINTS_PER_WEIGHT = 100
"""Ring points for one unit of weight: a balance of about 1.2 (max/mean) for 8 replicas."""

MAX_RING_SIZE = 8_388_608

MAX_POINTS = 131_072
"""What a picker can build in about 0.1 s at every change of health. Beyond it a unit of weight has fewer points."""

MAGLEV_TABLE_SIZE = 65_537

Hosts = Sequence[tuple[str, int]]
"""(hash_key, weight) of every host in the table, in Envoy's order."""


class Table(Protocol):
    """Maps the hash of a session key to hosts."""

    def owner(self, key: bytes) -> int | None:
        """Index of the host that Envoy picks for `key`; None when there is no host."""

    def walk(self, key: bytes) -> Iterator[int]:
        """Distinct hosts in the order in which retries would reach them, the owner first."""


def minimum_ring_size(weights: Sequence[int]) -> int:
    """What Envoy's `minimum_ring_size` is set to: it follows membership, not health."""
    total = sum(weights)
    points = min(POINTS_PER_WEIGHT, MAX_POINTS // total) if total else 0
    return max(1, points * total, total)


class Ring:
    """RING_HASH. Points are xxh64(f"{hash_key}_{i}"); a key goes to the first point at or after its own hash."""

    __slots__ = ("_count", "_hashes", "_hosts", "_size")

    def __init__(self, hosts: Hosts, minimum_size: int, maximum_size: int = MAX_RING_SIZE) -> None:
        points: list[tuple[int, int]] = []
        total = sum(weight for _, weight in hosts)
        if total:
            normalized = [weight / total for _, weight in hosts]
            least = min(normalized)
            scale = min(math.ceil(least * minimum_size) / least, float(maximum_size))
            current, target = 0.0, 0.0
            for index, (hash_key, _) in enumerate(hosts):
                target += scale * normalized[index]
                prefix, i = hash_key.encode() + b"_", 0
                while current < target:
                    points.append((xxh64_intdigest(prefix + b"%d" % i), index))
                    i += 1
                    current += 1.0
            points.sort(key=lambda point: point[0])
        self._hashes = [point for point, _ in points]
        self._hosts = [index for _, index in points]
        self._size = len(points)
        self._count = len(hosts)

    def owner(self, key: bytes) -> int | None:
        if not self._size:
            return None
        return self._hosts[bisect_left(self._hashes, xxh64_intdigest(key)) % self._size]

    def walk(self, key: bytes) -> Iterator[int]:
        start = bisect_left(self._hashes, xxh64_intdigest(key))
        seen: set[int] = set()
        for step in range(self._size):
            host = self._hosts[(start + step) % self._size]
            if host not in seen:
                seen.add(host)
                yield host
                if len(seen) == self._count:
                    return


class Maglev:
    """MAGLEV with Envoy's default table of 65,537 slots."""

    __slots__ = ("_count", "_table")

    def __init__(self, hosts: Hosts, table_size: int = MAGLEV_TABLE_SIZE) -> None:
        total = sum(weight for _, weight in hosts)
        self._table: list[int] = []
        self._count = len(hosts)
        if not total:
            return
        normalized = [weight / total for _, weight in hosts]
        heaviest = max(normalized)
        order = sorted(range(len(hosts)), key=lambda index: hosts[index][0].encode())
        offsets = {i: xxh64_intdigest(hosts[i][0].encode()) % table_size for i in order}
        skips = {i: xxh64_intdigest(hosts[i][0].encode(), seed=1) % (table_size - 1) + 1 for i in order}
        targets = dict.fromkeys(order, 0.0)
        table, filled, iteration = [-1] * table_size, 0, 0
        while filled < table_size:
            iteration += 1
            for i in order:
                if filled >= table_size:
                    break
                # a host of a third of the greatest weight takes a slot in every third iteration
                if iteration * normalized[i] < targets[i]:
                    continue
                targets[i] += heaviest
                slot = offsets[i]
                while table[slot] >= 0:
                    slot = (slot + skips[i]) % table_size
                table[slot] = i
                offsets[i] = (slot + skips[i]) % table_size
                filled += 1
        self._table = table

    def owner(self, key: bytes) -> int | None:
        return self._table[xxh64_intdigest(key) % len(self._table)] if self._table else None

    def walk(self, key: bytes) -> Iterator[int]:
        """Envoy's retries change the hash: attempt n looks up hash XOR (2**64 - n)."""
        if not self._table:
            return
        hashed, seen = xxh64_intdigest(key), set[int]()
        for attempt in range(len(self._table)):
            host = self._table[(hashed ^ (-attempt % 2**64) if attempt else hashed) % len(self._table)]
            if host not in seen:
                seen.add(host)
                yield host
                if len(seen) == self._count:
                    return
