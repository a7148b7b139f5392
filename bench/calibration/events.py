"""KV events of two engines, made comparable: hashes are each engine's own, so a block is named by all its tokens.

A block's content is the chain of token ids from the beginning of its prompt to its end, and the salt. Two streams are
equivalent when they tell of the same contents in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import xxhash


class BlockStored(msgspec.Struct, tag=True):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    extra_keys: list[object] | None = None


class BlockRemoved(msgspec.Struct, tag=True):
    block_hashes: list[int | bytes]


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Event]
    data_parallel_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One block that became findable or was removed. `content` names its chain, `depth` counts blocks from 0."""

    stored: bool
    depth: int
    content: str


class ChainError(Exception):
    """A stream that speaks of a block it has not told of before."""


def decode(payload: bytes) -> Batch:
    return msgspec.msgpack.decode(payload, type=Batch)


def blocks(batches: Iterable[Batch]) -> list[Block]:
    """Block by block, whatever the batches and events they came in. Raises ChainError."""
    known: dict[int | bytes, tuple[int, str]] = {}
    found: list[Block] = []
    for batch in batches:
        for event in batch.events:
            if isinstance(event, BlockStored):
                found += _stored(event, known)
            elif isinstance(event, BlockRemoved):
                found += [Block(False, *_of(key, known)) for key in event.block_hashes]
            else:
                known.clear()
    return found


def _stored(event: BlockStored, known: dict[int | bytes, tuple[int, str]]) -> list[Block]:
    depth, content = (-1, "") if event.parent_block_hash is None else _of(event.parent_block_hash, known)
    if len(event.token_ids) != len(event.block_hashes) * event.block_size:
        raise ChainError(f"{len(event.block_hashes)} blocks of {event.block_size} have {len(event.token_ids)} tokens")
    extras: Sequence[object] = event.extra_keys or [None] * len(event.block_hashes)
    found = []
    for i, key in enumerate(event.block_hashes):
        tokens = event.token_ids[i * event.block_size : (i + 1) * event.block_size]
        depth += 1
        content = xxhash.xxh3_128_hexdigest(msgspec.json.encode((content, tokens, extras[i] or None)))
        known[key] = depth, content
        found.append(Block(True, depth, content))
    return found


def _of(key: int | bytes, known: dict[int | bytes, tuple[int, str]]) -> tuple[int, str]:
    if key not in known:
        raise ChainError(f"block {key!r} was never stored")
    return known[key]
