"""One prompt on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from homing.sim.tokenizer import TokenIds


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Sampler(Protocol):
    @property
    def stopped(self) -> bool:
        """Whether the token taken last was the end of the answer."""
        ...

    def take(self) -> int:
        """The next token. Called once a token, in order."""
        ...


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable; the engine's own from `submit` until `finish_reason` is set. Times in seconds of the engine's clock."""

    tokens: TokenIds  # the prompt, then what was generated
    max_tokens: int
    sampler: Sampler
    salt: str = ""
    reads_cache: bool = True  # prompt_logprobs and echo switch reading off
    prompt_tokens: int = field(init=False)
    finish_reason: FinishReason | None = None

    # The engine's book-keeping.
    keys: list[bytes] = field(default_factory=list)  # of the full blocks of `tokens`
    blocks: list[int] = field(default_factory=list)
    registered: int = 0  # so many of `blocks` are findable
    computed: int = 0  # so many of `tokens` have their KV in `blocks`
    cached_tokens: int = 0  # of the prompt, found in the cache when first scheduled
    created_tokens: int = 0  # of the prompt, in full blocks that it added to the cache
    preemptions: int = 0
    arrived_s: float = 0.0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    itl_s: float | None = None  # between its last two tokens

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)

    def emit(self, at_s: float) -> None:
        """The next token comes at `at_s`."""
        self.tokens.append(self.sampler.take())
        if self.last_token_s is None:
            self.first_token_s = at_s
        else:
            self.itl_s = at_s - self.last_token_s
        self.last_token_s = at_s

    @property
    def complete(self) -> FinishReason | None:
        """Why no further token is to come, if so."""
        if self.sampler.stopped:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.output_tokens >= self.max_tokens else None

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def output(self) -> TokenIds:
        return self.tokens[self.prompt_tokens :]

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None
