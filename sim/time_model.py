"""How long one step of an engine takes, from what the hardware can do (a roofline).

A step loads the weights once for all its tokens, and for each sequence the KV of its context. Whatever is slower,
computing or loading, decides, apart for the linear layers and for attention:

    step = overhead + max(2 P T / F, W / B) + max(4 L H A / F, K C / B)

P parameters, T tokens in the step, W bytes of weights, L layers, H hidden size, A pairs of (new token, token before
it), K bytes of KV a token, C tokens of context over all sequences, F and B what is reached of peak compute and peak
bandwidth. So a decode step grows with the batch and its contexts, and a prefill with its length. Source of the form:
Williams et al., "Roofline", CACM 52(4), 2009; for transformers: Pope et al., "Efficiently Scaling Transformer
Inference", MLSys 2023.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one step has to do."""

    tokens: int  # computed in it, of prompts and of answers
    context_tokens: int  # in the KV of its sequences, the new ones included
    attention_pairs: int  # over its tokens: how many tokens each attends to

    @classmethod
    def of(cls, sequences: Iterable[tuple[int, int]]) -> StepLoad:
        """Each: so many tokens computed before, and so many in this step."""
        tokens = context = pairs = 0
        for computed, new in sequences:
            tokens += new
            context += computed + new
            pairs += new * computed + new * (new + 1) // 2
        return cls(tokens, context, pairs)


class TimeModel(Protocol):
    def step_s(self, load: StepLoad) -> float: ...


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak figures of the data sheet, dense, in the precision of the weights."""

    flops: float  # a second
    bandwidth: float  # bytes a second
    memory: float  # bytes


@dataclass(frozen=True, slots=True)
class ModelShape:
    parameters: float
    bytes_per_parameter: int
    layers: int
    hidden_size: int
    kv_heads: int
    head_dim: int

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values, two bytes each."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Roofline:
    """See the module. `compute_share` and `bandwidth_share` are what is reached of the peaks, `speed` divides all."""

    gpu: Gpu
    shape: ModelShape
    compute_share: float
    bandwidth_share: float
    overhead_s: float
    speed: float = 1.0

    def step_s(self, load: StepLoad) -> float:
        flops = self.gpu.flops * self.compute_share
        bandwidth = self.gpu.bandwidth * self.bandwidth_share
        linear_s = max(2 * self.shape.parameters * load.tokens / flops, self.shape.weight_bytes / bandwidth)
        attention_flops = 4 * self.shape.layers * self.shape.hidden_size * load.attention_pairs
        attention_s = max(attention_flops / flops, self.shape.kv_bytes_per_token * load.context_tokens / bandwidth)
        return (self.overhead_s + linear_s + attention_s) / self.speed

    def kv_blocks(self, block_size: int, memory_utilization: float) -> int:
        """How many KV blocks vLLM would make of what the weights leave of the memory."""
        left = self.gpu.memory * memory_utilization - self.shape.weight_bytes
        return max(int(left // (self.shape.kv_bytes_per_token * block_size)), 2)
