"""Envoy's RING_HASH.

Sources: Envoy `source/extensions/load_balancing_policies/ring_hash/ring_hash_lb.cc` (Ring::Ring, chooseHost) and
`.../common/thread_aware_lb_impl.cc` (normalizeHostWeights). The order of the floating point operations is theirs: with
unequal weights another order would place some points elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from xxhash import xxh64_intdigest

from homing.core.hashing.points import Points
from homing.core.hashing.table import Hosts

POINTS_PER_WEIGHT = 100
"""Ring points for one unit of weight: a balance of about 1.2 (max/mean) for 8 replicas."""

MAX_RING_SIZE = 8_388_608

MAX_POINTS = 131_072
"""What a picker can build in about 0.1 s at every change of health. Beyond it a unit of weight has fewer points."""


def minimum_ring_size(weights: Sequence[int]) -> int:
    """What Envoy's `minimum_ring_size` is set to: it follows membership, not health."""
    total = sum(weights)
    points = min(POINTS_PER_WEIGHT, MAX_POINTS // total) if total else 0
    return max(1, points * total, total)


class Ring:
    """RING_HASH. Points are xxh64(f"{hash_key}_{i}"); a key goes to the first point at or after its own hash."""

    __slots__ = ("_points",)

    def __init__(self, hosts: Hosts, minimum_size: int, maximum_size: int = MAX_RING_SIZE) -> None:
        points: dict[int, int] = {}
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
                    points[xxh64_intdigest(prefix + b"%d" % i)] = index
                    i += 1
                    current += 1.0
        self._points = Points(points, len(hosts))

    def owner(self, key: bytes) -> int | None:
        return self._points.at(xxh64_intdigest(key))

    def walk(self, key: bytes) -> Iterator[int]:
        return self._points.walk(xxh64_intdigest(key))
