"""Envoy's MAGLEV (Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", 3.4).

Sources: Envoy `source/extensions/load_balancing_policies/maglev/maglev_lb.cc` (OriginalMaglevTable) and
`.../common/thread_aware_lb_impl.cc` (normalizeHostWeights); the order of the floating point operations is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from xxhash import xxh64_intdigest

from homing.core.hashing.table import Hosts

MAGLEV_TABLE_SIZE = 65_537


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
