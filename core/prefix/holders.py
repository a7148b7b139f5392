"""Which replicas hold what: for each digest a set of replicas, as the bits of one number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class Slots:
    """Gives each replica of a pool a bit. Bits of replicas that are gone are used again."""

    __slots__ = ("_by_id", "_ids")

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._ids: list[str | None] = []

    def bit(self, replica_id: str) -> int:
        slot = self._by_id.get(replica_id)
        if slot is None:
            slot = self._ids.index(None) if None in self._ids else len(self._ids)
            self._ids[slot : slot + 1] = [replica_id]
            self._by_id[replica_id] = slot
        return 1 << slot

    def free(self, replica_id: str) -> None:
        """Whoever calls has cleared the bit everywhere."""
        slot = self._by_id.pop(replica_id, None)
        if slot is not None:
            self._ids[slot] = None

    def ids(self, bits: int) -> Iterator[str]:
        while bits:
            lowest = bits & -bits
            replica_id = self._ids[lowest.bit_length() - 1]
            assert replica_id is not None
            yield replica_id
            bits ^= lowest


class Holders(dict[int, int]):
    """Digest -> the bits of those who hold it; nobody's digests are not in it."""

    __slots__ = ()

    def add(self, digest: int, bit: int) -> None:
        self[digest] = self.get(digest, 0) | bit

    def remove(self, digest: int, bit: int) -> None:
        left = self.get(digest, 0) & ~bit
        if left:
            self[digest] = left
        else:
            self.pop(digest, None)


def lengths(holders: Mapping[int, int], chain: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """(bits, how many of the chain's first `count` digests each of them holds), in no order, without those that hold
    none. Whoever holds a digest is taken to hold all before it, as caches that drop a chain from its end do; so few
    look-ups are enough: about log2(count) for each length that occurs."""
    if not count:
        return
    pending = [(1, holders.get(chain[0], 0), count + 1, 0)]
    while pending:
        low, at_low, high, at_high = pending.pop()
        only_low = at_low & ~at_high
        if not only_low:
            continue
        if high - low == 1:
            yield only_low, low
            continue
        middle = (low + high) // 2
        at_middle = holders.get(chain[middle - 1], 0) & at_low | at_high
        pending.append((low, at_low, middle, at_middle))
        pending.append((middle, at_middle, high, at_high))
