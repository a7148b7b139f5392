"""What an engine makes of messages, asked of the engine: `POST /tokenize`, then `POST /detokenize`.

So the record has everything in it that the engine itself does to messages before its template sees them (vLLM makes
`developer` messages system ones where the template knows no such role).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import httpx
import msgspec

from homing.control.engine_transport import certificate_trouble
from homing.core.template.probe import RefusedError, probe
from homing.core.template.record import Capabilities
from homing.core.template.sentinels import Message

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 16 << 20

Ask = Callable[[Sequence[Message], Sequence[object] | None], Awaitable[str]]
"""The prompt of a conversation. Raises RefusedError, EngineError."""


_T = TypeVar("_T", bound=msgspec.Struct)


class EngineError(Exception):
    """The engine cannot be asked, or does not answer as vLLM does. Says why, in words."""


class _Tokenized(msgspec.Struct):
    tokens: list[int]


class _Counted(msgspec.Struct):
    max_model_len: int


class _Detokenized(msgspec.Struct):
    prompt: str


class _ErrorInfo(msgspec.Struct):
    message: str = ""


class _Error(msgspec.Struct):
    """As vLLM has it, and as older versions had it."""

    error: _ErrorInfo | None = None
    message: str = ""


class Engine:
    """One replica. `api_key`: what it was started with, if anything."""

    def __init__(self, client: httpx.AsyncClient, address: str, model: str, api_key: str | None = None) -> None:
        self._client = client
        self._url = f"http://{address}"
        self._model = model
        self._headers = {"content-type": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"

    async def render(self, messages: Sequence[Message], tools: Sequence[object] | None = None) -> str:
        """The prompt, as text. Raises RefusedError with the engine's words, EngineError."""
        asked: dict[str, object] = {"model": self._model, "messages": messages, "add_generation_prompt": True}
        if tools is not None:
            asked["tools"] = tools
        tokens = _read(await self._post("/tokenize", asked), _Tokenized).tokens
        return _read(await self._post("/detokenize", {"model": self._model, "tokens": tokens}), _Detokenized).prompt

    async def max_model_len(self) -> int:
        """How many tokens it takes, the answer's included. Raises RefusedError, EngineError."""
        asked = {"model": self._model, "prompt": "Hello"}
        return max(0, _read(await self._post("/tokenize", asked), _Counted).max_model_len)

    async def _post(self, path: str, body: object) -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._exchanged(path, msgspec.json.encode(body))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:  # TimeoutError is an OSError
            raise EngineError(f"{path}: {certificate_trouble(error) or type(error).__name__}") from None

    async def _exchanged(self, path: str, body: bytes) -> bytes:
        async with self._client.stream("POST", self._url + path, content=body, headers=self._headers) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise EngineError(f"{path}: more than {MAX_ANSWER_BYTES} bytes")
            if response.status_code == httpx.codes.BAD_REQUEST:
                raise RefusedError(_words(bytes(content)))
            if response.status_code != httpx.codes.OK:
                raise EngineError(f"{path}: status {response.status_code}")
            return bytes(content)


async def probed(ask: Ask, seed: bytes, dates: Sequence[str] = ()) -> Capabilities:
    """The record by asking. Raises OpaqueError, EngineError.

    The probe is synchronous and always the same for a seed: it runs until it meets a conversation whose prompt is not
    known, which is asked for, and then again from the start.
    """
    known: dict[bytes, str | RefusedError] = {}

    def render(messages: Sequence[Message], tools: Sequence[object] | None = None) -> str:
        answer = known.get(msgspec.json.encode((messages, tools)))
        if answer is None:
            raise _UnknownError(messages, tools)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    while True:
        try:
            return probe(render, seed, dates)
        except _UnknownError as unknown:
            key = msgspec.json.encode((unknown.messages, unknown.tools))
            try:
                known[key] = await ask(unknown.messages, unknown.tools)
            except RefusedError as refusal:
                known[key] = refusal


class _UnknownError(Exception):
    def __init__(self, messages: Sequence[Message], tools: Sequence[object] | None) -> None:
        super().__init__()
        self.messages = list(messages)
        self.tools = tools


def _read(body: bytes, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineError(f"not an answer of vLLM's: {error}") from None


def _words(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "refused"
    return (error.error.message if error.error else error.message)[:500] or "refused"
