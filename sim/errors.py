"""What a request can do wrong, with vLLM's words and shape (vllm/entrypoints/openai: ErrorResponse)."""

from __future__ import annotations

import msgspec

from homing.sim.validation import Problem


class ErrorInfo(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: int


class ErrorBody(msgspec.Struct):
    error: ErrorInfo


class RequestError(Exception):
    """A request that cannot be served. Each class has its status and vLLM's name for it."""

    status = 400
    type = "BadRequestError"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def body(self) -> bytes:
        return msgspec.json.encode(ErrorBody(ErrorInfo(str(self), self.type, self.param, self.status)))


class BadRequestError(RequestError):
    """Well-formed, but asks for something that cannot be. The message ends with the parameter and its value, where
    they are given, as vLLM's does (vllm/exceptions.py: VLLMValidationError)."""

    def __init__(self, message: str, param: str | None = None, value: object = None) -> None:
        extras = ([] if param is None else [f"parameter={param}"]) + ([] if value is None else [f"value={value}"])
        super().__init__(f"{message} ({', '.join(extras)})" if extras else message, param)


class MalformedError(RequestError):
    """The body is not JSON, or not of the request's shape: FastAPI's validation errors, as vLLM passes them on."""

    type = "Bad Request"

    def __init__(self, *problems: Problem) -> None:
        head = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''}:"
        super().__init__("\n  ".join((head, *map(str, problems))), problems[0].location)


class ModelNotFoundError(RequestError):
    status = 404
    type = "NotFoundError"

    def __init__(self, model: str, served: str) -> None:
        super().__init__(f"The model `{model}` does not exist. Valid aliases: {served}.", "model")


class UnavailableError(RequestError):
    status = 503
    type = "ServiceUnavailableError"


class TooLargeError(RequestError):
    """A body past the sim's own bound; vLLM has none."""

    status = 413
    type = "BadRequestError"


class ContextTooLongError(BadRequestError):
    """vLLM stops tokenizing a text one token past what fits, so then its count is "at least"."""

    def __init__(self, limit: int, input_tokens: int, *, from_text: bool) -> None:
        input_tokens = min(input_tokens, limit + 1) if from_text else input_tokens
        count = f"at least {input_tokens}" if input_tokens == limit + 1 else str(input_tokens)
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains {count} input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
            "prompt.",
            "input_tokens",
            input_tokens,
        )
