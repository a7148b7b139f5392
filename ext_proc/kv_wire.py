"""KV events as vLLM packs them (vllm/distributed/kv_events.py), into what the index understands.

A batch is `[ts, [events], data_parallel_rank]` in msgpack. Events are maps since vLLM 0.24 and were arrays before; both
are taken, from one engine and in one batch. Fields and events that are not known here are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from homing.core.prefix.events import CacheEvent, Cleared, Removed, Stored

_DEVICE = (None, "GPU")
"""The device's own cache is called GPU, whatever the device is; other media are tiers behind it."""


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
BlockSize = Annotated[int, msgspec.Meta(ge=1)]


class _Stored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[TokenId]
    block_size: BlockSize
    medium: str | None = None
    extra_keys: list[msgspec.Raw] | None = None
    group_idx: int | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _StoredArray(msgspec.Struct, tag="BlockStored", array_like=True):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[TokenId]
    block_size: BlockSize
    lora_id: int | None = None
    medium: str | None = None


class _RemovedArray(msgspec.Struct, tag="BlockRemoved", array_like=True):
    block_hashes: list[int | bytes]
    medium: str | None = None


class _ClearedArray(msgspec.Struct, tag="AllBlocksCleared", array_like=True):
    pass


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[msgspec.Raw]


_batch = msgspec.msgpack.Decoder(_Batch)
_map = msgspec.msgpack.Decoder(_Stored | _Removed | _Cleared)
_array = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)


@dataclass(frozen=True, slots=True)
class Batch:
    """`passed_over`: events of a kind, a tier or an attention group that the index does not follow."""

    events: tuple[CacheEvent, ...]
    passed_over: int


def decode(payload: bytes) -> Batch:
    """Raises msgspec.DecodeError for what is no batch."""
    raw = _batch.decode(payload).events
    events = tuple(event for item in raw if (event := _event(bytes(item))) is not None)
    return Batch(events, len(raw) - len(events))


def _event(raw: bytes) -> CacheEvent | None:
    try:
        event = (_map if raw[0] & 0xF0 == 0x80 or raw[0] in (0xDE, 0xDF) else _array).decode(raw)
    except msgspec.ValidationError:  # of another kind, or with fields of other types
        return None
    match event:
        case _Cleared() | _ClearedArray():
            return Cleared()
        case _Stored() | _StoredArray():
            return _stored(event) if _followed(event) else None
        case _:
            return Removed(tuple(map(_hash, event.block_hashes))) if _followed(event) else None


def _stored(event: _Stored | _StoredArray) -> Stored:
    keys = event.extra_keys if isinstance(event, _Stored) else None
    return Stored(
        tuple(map(_hash, event.block_hashes)),
        None if event.parent_block_hash is None else _hash(event.parent_block_hash),
        event.token_ids,
        event.block_size,
        tuple(map(_extra, keys)) if keys else (),
    )


def _followed(event: _Stored | _StoredArray | _Removed | _RemovedArray) -> bool:
    """Of models with several kinds of attention the first group is followed: it keeps the whole prompt."""
    group = event.group_idx if isinstance(event, _Stored | _Removed) else None
    return event.medium in _DEVICE and not group


def _hash(value: int | bytes) -> int:
    """Whole digests are cut to their last 64 bits, as vLLM does by default."""
    return value if isinstance(value, int) else int.from_bytes(value[-8:], "big")


def _extra(raw: msgspec.Raw) -> bytes:
    """What else makes up a block's identity, in one form: a lone salt as itself, as requests have it."""
    value: object = msgspec.msgpack.decode(raw)
    if not value:
        return b""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0].encode()
    return msgspec.msgpack.encode(value)
