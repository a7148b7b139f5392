"""The parts of one simulated replica, and what every endpoint asks of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from homing.sim.chat_template import ChatTemplate
from homing.sim.conversations import Conversations
from homing.sim.detokenizer import StopWatch, TextStream
from homing.sim.driver import Driver
from homing.sim.errors import BadRequestError, ContextTooLongError, ModelNotFoundError
from homing.sim.generation import Choice, Generation
from homing.sim.metrics import Metrics
from homing.sim.requests import DEFAULT_MAX_TOKENS, Sampling
from homing.sim.sequence import Sequence as Tokens
from homing.sim.tokenizer import TokenIds, Tokenizer, token_ids
from homing.sim.words import WordModel


@dataclass(frozen=True, slots=True)
class Identity:
    """`id` names the replica, `model` is the served name. `started_s` is wall-clock time."""

    id: str
    model: str
    max_model_len: int
    started_s: int = field(default_factory=lambda: int(time.time()))

    @property
    def fingerprint(self) -> str:
        """OpenAI's `system_fingerprint`: here it says which replica answered."""
        return f"sim-{self.id}"

    def check_model(self, model: str | None) -> None:
        """A request without a model means the served one. Raises ModelNotFoundError."""
        if model and model != self.model:
            raise ModelNotFoundError(model)


@dataclass(frozen=True, slots=True)
class Replica:
    identity: Identity
    tokenizer: Tokenizer
    template: ChatTemplate
    words: WordModel
    driver: Driver
    metrics: Metrics
    conversations: Conversations = field(default_factory=Conversations)

    def generation(
        self, request: Sampling, prompts: Sequence[TokenIds], *, keep_guesses: int = 0, reads_cache: bool = True
    ) -> Generation:
        """The request's choices, not yet started. Raises BadRequestError when one does not fit."""
        limit = DEFAULT_MAX_TOKENS if request.output_limit is None else request.output_limit
        allowed = self._allowed(request.allowed_token_ids)
        choices: list[Choice] = []
        for prompt in prompts:
            self._check_length(prompt, limit)
            for number in range(request.choices):
                variant = b"" if request.seed is None and number == 0 else f"{request.seed}/{number}".encode()
                words = self.words.start(prompt, variant, keep_guesses, allowed)
                stops = request.stops
                sequence = Tokens(
                    tokens=prompt[:],
                    max_tokens=limit,
                    sampler=StopWatch(words, TextStream(self.tokenizer, stops)) if stops else words,
                    salt=request.cache_salt or "",
                    reads_cache=reads_cache,
                )
                text = TextStream(self.tokenizer, stops)
                choices.append(Choice(len(choices), sequence, text, words.guesses))
        return Generation(self.driver, choices, request.choices)

    def prompt_ids(self, values: Sequence[int]) -> TokenIds:
        """A prompt that came as ids. Raises BadRequestError for ids outside the vocabulary."""
        if values and not 0 <= (low := min(values)) <= (high := max(values)) < self.tokenizer.vocab_size:
            raise BadRequestError(f"Token id {high if low >= 0 else low} is out of vocabulary", "prompt")
        return token_ids(values)

    def _allowed(self, values: list[int] | None) -> TokenIds:
        """Raises BadRequestError; its words are vLLM's (vllm/sampling_params.py)."""
        if values is not None and not values:
            raise BadRequestError("allowed_token_ids is not None and empty!", "allowed_token_ids")
        if values and not 0 <= min(values) <= max(values) < self.tokenizer.vocab_size:
            raise BadRequestError("allowed_token_ids contains out-of-vocab token id!", "allowed_token_ids")
        return token_ids(values or ())

    def _check_length(self, prompt: TokenIds, limit: int) -> None:
        if not prompt:
            raise BadRequestError("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        if len(prompt) + limit > self.identity.max_model_len:
            raise ContextTooLongError(self.identity.max_model_len, limit, len(prompt))


def new_id(prefix: str, given: str | None = None) -> str:
    """vLLM takes the client's `x-request-id` where there is one."""
    return f"{prefix}{given or secrets.token_hex(16)}"
