"""What an engine says of its cache. The wire's forms are `ext_proc.kv_wire`'s business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks became findable: one after the other, behind `parent` (None at a prompt's beginning). `hashes` are the
    engine's own names for them. `extras[i]` is what enters block i's identity beside its tokens, b"" for nothing."""

    hashes: Sequence[int]
    parent: int | None
    token_ids: Sequence[int]
    block_size: int
    extras: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Removed:
    """One copy of each of these blocks is gone."""

    hashes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Every block is gone."""


CacheEvent = Stored | Removed | Cleared
