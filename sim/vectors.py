"""Vectors for texts: each token has a direction of its own, a text is the sum of its tokens, of length one.

So texts with common words are near each other, which is all that a test of `/v1/embeddings` and `/rerank` can ask.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import xxhash

from homing.sim.tokenizer import TokenIds

DIMENSIONS = 64


def vector(tokens: TokenIds, dimensions: int = DIMENSIONS) -> list[float]:
    sums = [0.0] * dimensions
    for token, times in _counts(tokens).items():
        # One bit a dimension: up or down.
        bits = _bits(token, dimensions)
        for i in range(dimensions):
            sums[i] += times if bits >> i & 1 else -times
    length = math.sqrt(sum(x * x for x in sums)) or 1.0
    return [x / length for x in sums]


def similarity(one: Iterable[float], other: Iterable[float]) -> float:
    """Cosine, mapped to 0..1 as a reranker's score."""
    return (1 + sum(a * b for a, b in zip(one, other, strict=True))) / 2


def _counts(tokens: TokenIds) -> dict[int, int]:
    counts: dict[int, int] = {}
    for token in tokens:
        counts[token] = counts.get(token, 0) + 1
    return counts


def _bits(token: int, dimensions: int) -> int:
    bits = 0
    for word in range(-(-dimensions // 128)):
        bits |= xxhash.xxh3_128_intdigest(token.to_bytes(4, "little"), seed=word) << 128 * word
    return bits
