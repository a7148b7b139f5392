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
from homing.sim.errors import BadRequestError, ContextTooLongError, MalformedError, ModelNotFoundError
from homing.sim.generation import Choice, Generation
from homing.sim.metrics import Metrics
from homing.sim.requests import DEFAULT_MAX_TOKENS, Sampling, check_output_limit
from homing.sim.sequence import Sequence as Tokens
from homing.sim.tokenizer import TokenIds, Tokenizer, token_ids
from homing.sim.validation import negative
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
            raise ModelNotFoundError(model, self.model)


@dataclass(frozen=True, slots=True)
class Replica:
    identity: Identity
    tokenizer: Tokenizer
    template: ChatTemplate
    words: WordModel
    driver: Driver
    metrics: Metrics
    stream_interval: int = 1
    conversations: Conversations = field(default_factory=Conversations)
    engine_sessions: dict[str, float] = field(default_factory=dict)
    """SageMaker's, with the wall-clock time when each ends."""

    def generation(
        self,
        request: Sampling,
        prompts: Sequence[TokenIds],
        *,
        keep_guesses: int = 0,
        reads_cache: bool = True,
        from_text: bool = True,
    ) -> Generation:
        """The request's choices, not yet started. Raises BadRequestError when one does not fit."""
        allowed = self._allowed(request.allowed_token_ids)
        choices: list[Choice] = []
        for prompt in prompts:
            limit = self._output_limit(request, prompt, from_text=from_text)
            for number in range(request.choices):
                variant = b"" if request.seed is None and number == 0 else f"{request.seed}/{number}".encode()
                words = self.words.start(prompt, variant, keep_guesses, allowed)
                stops = request.stops
                sequence = Tokens(
                    tokens=prompt[:],
                    max_tokens=limit,
                    sampler=StopWatch(words, TextStream(self.tokenizer, stops)) if stops else words,
                    salt=request.salt,
                    reads_cache=reads_cache,
                )
                text = TextStream(self.tokenizer, stops)
                choices.append(Choice(len(choices), sequence, text, words.guesses))
        return Generation(self.driver, choices, request.choices, self.stream_interval)

    def prompt_ids(self, values: Sequence[int], location: str = "body.prompt") -> TokenIds:
        """A prompt that came as ids. Raises RequestError for ids outside the vocabulary."""
        self.check_ids(values, location)
        if values and (highest := max(values)) >= self.tokenizer.vocab_size:
            raise BadRequestError(f"Token id {highest} is out of vocabulary")
        return token_ids(values)

    @staticmethod
    def check_ids(values: Sequence[int], location: str) -> None:
        """Raises MalformedError for negative ones."""
        if values and min(values) < 0:
            number, value = next((i, v) for i, v in enumerate(values) if v < 0)
            raise MalformedError(negative(f"{location}.{number}", value))

    def _allowed(self, values: list[int] | None) -> TokenIds:
        """Raises BadRequestError; its words are vLLM's (vllm/sampling_params.py)."""
        if values is not None and not values:
            raise BadRequestError("allowed_token_ids is not None and empty!", "allowed_token_ids", values)
        invalid = [value for value in values or () if not 0 <= value < self.tokenizer.vocab_size]
        if invalid:
            raise BadRequestError("allowed_token_ids contains out-of-vocab token id!", "allowed_token_ids", invalid)
        return token_ids(values or ())

    def _output_limit(self, request: Sampling, prompt: TokenIds, *, from_text: bool) -> int:
        """What was asked for, cut to what the context leaves, as vLLM does. Raises BadRequestError."""
        longest = self.identity.max_model_len
        if not prompt:
            raise BadRequestError("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        asked = request.output_limit
        if asked is not None and asked > longest:
            name = request.output_limit_name
            words = f"{name}={asked} cannot be greater than max_model_len={longest}."
            raise BadRequestError(f"{words} Please request fewer output tokens.", name, asked)
        if len(prompt) > longest:
            raise ContextTooLongError(longest, len(prompt), from_text=from_text)
        limit = min(DEFAULT_MAX_TOKENS if asked is None else asked, longest - len(prompt))
        check_output_limit(limit)
        return limit


def new_id(prefix: str, given: str | None = None) -> str:
    """vLLM takes the client's `x-request-id` where there is one."""
    return f"{prefix}{given or secrets.token_hex(16)}"
