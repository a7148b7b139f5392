"""Request bodies, with the fields that the sim heeds; others are accepted and ignored, as in vLLM."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from homing.sim.errors import BadRequestError, MalformedError
from homing.sim.validation import explain

DEFAULT_MAX_TOKENS = 16
MAX_CHOICES = 64  # the sim's own bound
MAX_LOGPROBS = 20
MAX_SALT = 128
NOT_IN_SALT = "@/\\\0"
GREEDY = 1e-5  # temperatures below are greedy decoding


class StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Sampling(msgspec.Struct, kw_only=True):
    """Common to every endpoint that generates."""

    model: str | None = None
    max_tokens: int | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    cache_salt: object = None  # a text, as `check` makes sure
    return_token_ids: bool | None = None
    allowed_token_ids: list[int] | None = None

    @property
    def output_limit(self) -> int | None:
        return self.max_tokens

    @property
    def output_limit_name(self) -> str:
        return "max_tokens"

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in given if stop)

    @property
    def salt(self) -> str:
        return self.cache_salt if isinstance(self.cache_salt, str) else ""

    def check(self) -> None:
        """Raises BadRequestError for values out of range. Source: vllm/sampling_params.py, and the protocol modules."""
        if self.stream_options is not None and not self.stream:
            raise BadRequestError("Stream options can only be defined when `stream=True`.", "stream_options")
        _check_salt(self.cache_salt)
        self._check_choices()
        _check_range("presence_penalty", self.presence_penalty)
        _check_range("frequency_penalty", self.frequency_penalty)
        if self.temperature is not None and self.temperature < 0:
            raise BadRequestError(
                f"temperature must be non-negative, got {self.temperature}.", "temperature", self.temperature
            )
        if self.temperature is not None and self.temperature > 2:
            raise BadRequestError(
                f"temperature must be in [0, 2], got {self.temperature}.", "temperature", self.temperature
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise BadRequestError(f"top_p must be in (0, 1], got {self.top_p}.", "top_p", self.top_p)
        if self.output_limit is not None:
            check_output_limit(self.output_limit)

    def _check_choices(self) -> None:
        if self.n is not None and self.n < 1:
            raise BadRequestError(f"n must be at least 1, got {self.n}.")
        if self.choices > MAX_CHOICES:
            raise BadRequestError(f"n must be at most {MAX_CHOICES}, got {self.n}.")
        if self.choices > 1 and self.temperature is not None and self.temperature < GREEDY:
            raise BadRequestError(f"n must be 1 when using greedy sampling, got {self.n}.")


class ChatRequest(Sampling, kw_only=True):
    messages: list[dict[str, object]]  # as the client sent them: the chat template sees every field
    max_completion_tokens: int | None = None
    tools: list[dict[str, object]] | None = None
    chat_template_kwargs: dict[str, object] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    logprobs: bool | None = None
    top_logprobs: int | None = None

    @property
    def output_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def output_limit_name(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def guesses(self) -> int:
        """How many to keep of each token."""
        return max(self.top_logprobs or 0, 1) if self.logprobs else 0

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise BadRequestError("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        _check_logprobs(self.top_logprobs, "top_logprobs", "logprobs")


class CompletionRequest(Sampling, kw_only=True):
    prompt: str | list[str | int | list[int]] | None = None
    add_special_tokens: bool = True
    echo: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    @property
    def output_limit(self) -> int | None:
        """With `echo`, none is allowed, for the sake of the prompt's logprobs; the engine makes one all the same."""
        return self.max_tokens if self.wants_output else 1

    @property
    def wants_output(self) -> bool:
        return not (self.echo and self.max_tokens == 0)

    @property
    def wants_prompt_logprobs(self) -> bool:
        return self.prompt_logprobs is not None or (self.echo and self.logprobs is not None)

    def check(self) -> None:
        if not self.prompt and self.prompt != []:
            raise BadRequestError("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        super().check()
        _check_logprobs(self.logprobs, "logprobs", "logprobs")
        if self.prompt_logprobs and self.stream:
            raise BadRequestError("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
        _check_logprobs(self.prompt_logprobs, "prompt_logprobs", "prompt_logprobs")


def check_output_limit(limit: int) -> None:
    """Raises BadRequestError."""
    if limit < 1:
        raise BadRequestError(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)


def _check_range(name: str, value: float | None) -> None:
    if value is not None and not -2 <= value <= 2:
        raise BadRequestError(f"{name} must be in [-2, 2], got {value}.")


def _check_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise BadRequestError("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > MAX_SALT or any(character in salt for character in NOT_IN_SALT):
        raise BadRequestError(
            f"Parameter 'cache_salt' must be at most {MAX_SALT} characters and must not contain "
            "'@', '/', '\\\\', or NUL.",
            "cache_salt",
        )


def _check_logprobs(count: int | None, name: str, engine_name: str) -> None:
    """`engine_name`: what the engine's own parameter is called."""
    if count is not None and count < 0:
        raise BadRequestError(f"`{name}` must be a positive value or -1.", name, count)
    if count is not None and count > MAX_LOGPROBS:
        whose = "sample" if engine_name == "logprobs" else "prompt"
        words = f"Requested {whose} logprobs of {count}, which is greater than max allowed: {MAX_LOGPROBS}"
        raise BadRequestError(words, engine_name, count)


Body = TypeVar("Body")


def parse(data: bytes, shape: type[Body]) -> Body:
    """Numbers may come as text, as pydantic takes them. Raises MalformedError."""
    try:
        return msgspec.json.decode(data, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(*explain(data, str(error))) from None
