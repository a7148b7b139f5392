"""An engine's own counters, read out of the text of its /metrics (vllm/v1/metrics/loggers.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SAMPLE = re.compile(
    rb"\nvllm:(num_requests_running|num_requests_waiting|prefix_cache_queries_total|prefix_cache_hits_total"
    rb"|cache_config_info)(?:\{([^\n]*)\})? ([0-9.eE+-]+)"
)
"""A line, with the end of the one before it: found nine times sooner than by `^`, of which each line is a try."""

_ENGINE = re.compile(rb'\bengine="(\d+)"')
_BLOCK_SIZE = re.compile(rb'\bblock_size="(\d+)"')
_BLOCKS = re.compile(rb'\bnum_gpu_blocks="(\d+)"')


@dataclass(frozen=True, slots=True)
class Counters:
    """`queried` and `found` are prompt tokens since the engine's start. `cache_tokens`: the size of its KV cache, None
    where it does not say."""

    running: int = 0
    waiting: int = 0
    queried: float = 0.0
    found: float = 0.0
    cache_tokens: float | None = None

    def restarted(self, before: Counters | None) -> bool:
        """Whether it counts less than before: another life of the engine, with an empty cache."""
        return before is not None and self.queried < before.queried

    def since(self, before: Counters | None) -> tuple[float, float]:
        """Tokens queried and found since then; an engine that counts less than before has restarted."""
        if before is None:
            return 0.0, 0.0
        if self.restarted(before):
            return self.queried, self.found
        return self.queried - before.queried, self.found - before.found


def read(text: bytes, rank: int | None = None) -> Counters | None:
    """None when nothing of it is there. `rank`: only that data-parallel rank's; else all that the address has."""
    seen: dict[bytes, float] = {}
    cache = 0.0
    for match in _SAMPLE.finditer(b"\n" + text):
        name, labels, value = match.groups(b"")
        if rank is not None and (engine := _ENGINE.search(labels)) is not None and int(engine[1]) != rank:
            continue
        if name == b"cache_config_info":
            size, blocks = _BLOCK_SIZE.search(labels), _BLOCKS.search(labels)
            cache += int(size[1]) * int(blocks[1]) if size is not None and blocks is not None else 0
        else:
            try:
                seen[name] = seen.get(name, 0.0) + float(value)
            except ValueError:
                continue
    if not seen:
        return None
    return Counters(
        int(seen.get(b"num_requests_running", 0)),
        int(seen.get(b"num_requests_waiting", 0)),
        seen.get(b"prefix_cache_queries_total", 0.0),
        seen.get(b"prefix_cache_hits_total", 0.0),
        cache or None,
    )
