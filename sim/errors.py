"""What a request can do wrong, with vLLM's words and shape (vllm/entrypoints/openai: ErrorResponse)."""

from __future__ import annotations

import msgspec


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
    """Well-formed, but asks for something that cannot be."""


class MalformedError(RequestError):
    """The body is not JSON, or not of the request's shape: FastAPI's validation errors, as vLLM passes them on."""

    type = "Bad Request"

    def __init__(self, kind: str, location: tuple[str | int, ...], problem: str) -> None:
        super().__init__(f"1 validation error:\n  {{'type': {kind!r}, 'loc': {location!r}, 'msg': {problem!r}}}")


class ModelNotFoundError(RequestError):
    status = 404
    type = "NotFoundError"

    def __init__(self, model: str) -> None:
        super().__init__(f"The model `{model}` does not exist.", "model")


class UnavailableError(RequestError):
    status = 503
    type = "ServiceUnavailableError"


class TooLargeError(RequestError):
    """A body past the sim's own bound; vLLM has none."""

    status = 413
    type = "BadRequestError"


class NotFoundError(RequestError):
    """No such path, or not by this method: starlette's words, in vLLM's shape."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.type = words


class ContextTooLongError(BadRequestError):
    """vLLM stops tokenizing one token past what fits, so its count is "at least"."""

    def __init__(self, limit: int, output_tokens: int, input_tokens: int) -> None:
        input_tokens = min(input_tokens, max(limit - output_tokens, 0) + 1)
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, you requested {output_tokens} output "
            f"tokens and your prompt contains at least {input_tokens} input tokens, for a total of at least "
            f"{input_tokens + output_tokens} tokens. Please reduce the length of the input prompt or the number of "
            "requested output tokens.",
            "input_tokens",
        )
