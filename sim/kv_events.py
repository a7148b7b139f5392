"""KV events as vLLM publishes them: what a batch looks like, its number, and what can be replayed.

Source: vllm/distributed/kv_events.py. A batch is `[ts, [events], data_parallel_rank]` in msgpack. Events are maps since
vLLM 0.24 and were arrays before; consumers must take both, so the sim can send either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from homing.sim.prefix_cache import CacheEvent, Removed, Stored

REPLAY_BATCHES = 10_000
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


class EventFormat(StrEnum):
    MAP = "map"
    ARRAY = "array"


class KvEventsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's `--kv-events-config`. An endpoint with `*` (or ipc://) is bound, one with a host is connected to."""

    enable_kv_cache_events: bool = False
    publisher: str = "zmq"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = REPLAY_BATCHES
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""


class BlockStored(msgspec.Struct, tag=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: None
    medium: str
    lora_name: None
    extra_keys: list[tuple[str, ...] | None]
    group_idx: int = 0
    kv_cache_spec_kind: str = "full_attention"


class BlockRemoved(msgspec.Struct, tag=True):
    block_hashes: list[int]
    medium: str
    group_idx: int = 0


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class StoredArray(msgspec.Struct, tag="BlockStored", array_like=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: None
    medium: str


class RemovedArray(msgspec.Struct, tag="BlockRemoved", array_like=True):
    block_hashes: list[int]
    medium: str


class ClearedArray(msgspec.Struct, tag="AllBlocksCleared", array_like=True):
    pass


Wire = BlockStored | BlockRemoved | AllBlocksCleared | StoredArray | RemovedArray | ClearedArray


class EventLog:
    """Numbers batches from 0 and keeps the latest for replay. A restarted engine begins again."""

    def __init__(self, block_size: int, form: EventFormat, keep: int = REPLAY_BATCHES) -> None:
        self._block_size = block_size
        self._form = form
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=keep)
        self._next = 0

    def add(self, events: Iterable[CacheEvent], now_s: float) -> tuple[bytes, bytes]:
        """One batch as (sequence number, payload). `now_s` is wall-clock time."""
        payload = msgspec.msgpack.encode((now_s, [self._wire(event) for event in events], 0))
        batch = (self._next.to_bytes(8, "big"), payload)
        self._next += 1
        self._kept.append(batch)
        return batch

    def since(self, start: int) -> list[tuple[bytes, bytes]]:
        """Kept batches from number `start` on, oldest first."""
        first = self._next - len(self._kept)
        return list(self._kept)[max(start - first, 0) :]

    def _wire(self, event: CacheEvent) -> Wire:
        maps = self._form is EventFormat.MAP
        if isinstance(event, Stored):
            hashes, parent = [_int(key) for key in event.keys], _int(event.parent) if event.parent else None
            tokens = list(event.tokens)
            if not maps:
                return StoredArray(hashes, parent, tokens, self._block_size, None, "GPU")
            extra: list[tuple[str, ...] | None] = [None] * len(hashes)
            if event.salt:
                extra[0] = (event.salt,)
            return BlockStored(hashes, parent, tokens, self._block_size, None, "GPU", None, extra)
        if isinstance(event, Removed):
            hashes = [_int(key) for key in event.keys]
            return BlockRemoved(hashes, "GPU") if maps else RemovedArray(hashes, "GPU")
        return AllBlocksCleared() if maps else ClearedArray()


def _int(key: bytes) -> int:
    """vLLM, too, publishes the lower 64 bits by default."""
    return int.from_bytes(key[-8:], "big")
