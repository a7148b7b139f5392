"""Request bodies, with the fields that the sim heeds; others are accepted and ignored, as in vLLM."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from homing.sim.errors import BadRequestError, MalformedError

DEFAULT_MAX_TOKENS = 16
MAX_CHOICES = 64
MAX_LOGPROBS = 20


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
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    allowed_token_ids: list[int] | None = None

    @property
    def output_limit(self) -> int | None:
        return self.max_tokens

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in given if stop)

    def check(self) -> None:
        """Raises BadRequestError for values out of range."""
        if self.output_limit is not None and self.output_limit < 1:
            raise BadRequestError(f"max_tokens must be at least 1, got {self.output_limit}.", "max_tokens")
        if self.n is not None and not 1 <= self.n <= MAX_CHOICES:
            raise BadRequestError(f"n must be between 1 and {MAX_CHOICES}, got {self.n}.", "n")
        if self.stream_options is not None and not self.stream:
            raise BadRequestError("Stream options can only be defined when `stream=True`.", "stream_options")
        if self.cache_salt == "":
            raise BadRequestError("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")


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
    def guesses(self) -> int:
        """How many to keep of each token."""
        return max(self.top_logprobs or 0, 1) if self.logprobs else 0

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise BadRequestError("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        _check_logprobs(self.top_logprobs, "top_logprobs")


class CompletionRequest(Sampling, kw_only=True):
    prompt: str | list[str | int | list[int]]
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

    def check(self) -> None:
        super().check()
        _check_logprobs(self.logprobs, "logprobs")
        _check_logprobs(self.prompt_logprobs, "prompt_logprobs")
        if self.prompt_logprobs and self.stream:
            raise BadRequestError("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")


def _check_logprobs(count: int | None, name: str) -> None:
    if count is not None and count < 0:
        raise BadRequestError(f"`{name}` must be a positive value.", name)
    if count is not None and count > MAX_LOGPROBS:
        raise BadRequestError(f"Requested {name} of {count}, which is greater than max allowed: {MAX_LOGPROBS}", name)


Body = TypeVar("Body")


def parse(data: bytes, shape: type[Body]) -> Body:
    """Raises MalformedError."""
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise _validation_problem(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        position = re.search(r"byte (\d+)", str(error))
        raise MalformedError(
            "json_invalid", ("body", int(position[1]) if position else 0), "JSON decode error"
        ) from None
    except RecursionError:
        raise MalformedError("json_invalid", ("body", 0), "JSON decode error") from None


def _validation_problem(text: str) -> MalformedError:
    """msgspec's words as pydantic's: `Object missing required field `messages`` and `... - at `$.n``."""
    missing = re.match(r"Object missing required field `(\w+)`(?: - at `\$(.*)`)?", text)
    if missing:
        return MalformedError("missing", ("body", *_path(missing[2] or ""), missing[1]), "Field required")
    where = re.search(r" - at `\$(.*)`$", text)
    return MalformedError("type_error", ("body", *_path(where[1] if where else "")), text.split(" - at ")[0])


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[.\[\]]+", text) if part)
