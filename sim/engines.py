"""Which engine the flags ask for."""

from __future__ import annotations

from dataclasses import dataclass

from homing.sim.batching import BatchingEngine, Limits
from homing.sim.engine import Engine
from homing.sim.paced import PacedEngine
from homing.sim.prefix_cache import CacheShape, PrefixCache
from homing.sim.presets import Preset, load_presets

# Without a preset: room for anything, so that tests of other things need not think of it.
ROOMY_BLOCKS = 524_289
ROOMY_SEQS = 4096
ROOMY_MODEL_LEN = 4_194_304


class OptionError(Exception):
    """Flags that do not go together. The message names them."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """vLLM's flags and the sim's own. None means the preset's value, or room for anything."""

    preset: str | None = None
    speed: float = 1.0
    ttft_s: float = 0.02
    itl_s: float = 0.005
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    num_gpu_blocks: int | None = None
    gpu_memory_utilization: float = 0.9
    prefix_caching: bool = True


def build_engine(options: EngineOptions, *, record_events: bool = False) -> tuple[Engine, int]:
    """The engine, and the longest sequence it takes. Raises OptionError."""
    preset = load_presets()[options.preset] if options.preset else None
    num_blocks = options.num_gpu_blocks or _blocks(preset, options)
    cache = PrefixCache(CacheShape(options.block_size, num_blocks), record_events=record_events)
    return _engine(options, preset, cache), _model_len(options, preset, cache.shape.capacity_tokens)


def _engine(options: EngineOptions, preset: Preset | None, cache: PrefixCache) -> Engine:
    if preset is None:
        return PacedEngine(
            cache,
            ttft_s=options.ttft_s / options.speed,
            itl_s=options.itl_s / options.speed,
            max_num_seqs=options.max_num_seqs or ROOMY_SEQS,
            prefix_caching=options.prefix_caching,
        )
    limits = Limits(
        options.max_num_seqs or preset.max_num_seqs,
        options.max_num_batched_tokens or preset.max_num_batched_tokens,
    )
    return BatchingEngine(cache, preset.roofline(options.speed), limits, prefix_caching=options.prefix_caching)


def _blocks(preset: Preset | None, options: EngineOptions) -> int:
    if preset is None:
        return ROOMY_BLOCKS
    return preset.roofline(options.speed).kv_blocks(options.block_size, options.gpu_memory_utilization)


def _model_len(options: EngineOptions, preset: Preset | None, capacity: int) -> int:
    """What cannot fit into the whole cache would wait for ever; vLLM, too, refuses such a length when it starts."""
    if options.max_model_len is None:
        return min(ROOMY_MODEL_LEN if preset is None else preset.max_model_len, capacity)
    if options.max_model_len > capacity:
        raise OptionError(f"--max-model-len {options.max_model_len}: the KV cache holds {capacity} tokens")
    return options.max_model_len
