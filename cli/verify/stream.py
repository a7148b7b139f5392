"""One answer of OpenAI's API as it arrives: when its first token came, how fast the others, who served it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import msgspec

from homing.core.verify.observed import Answer, Failure

SHOWN = 200
"""Characters of an error's words that are shown."""

AT_ONCE_S = 0.002
AT_ONCE_CHUNKS = 4
"""So many parts within so short a time were gathered on the way: no engine writes as fast."""

REPLICA = "x-homing-replica"
DECISION = "x-homing-decision"


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None

    @property
    def says(self) -> bool:
        said = self.delta or self.message or _Delta()
        return bool(self.text or said.content or said.reasoning_content or said.reasoning)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    """Of a stream, or a whole answer."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


class _Words(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    """As OpenAI, vLLM and FastAPI word it."""

    error: _Words | str | None = None
    message: str = ""
    detail: str | msgspec.Raw = ""


@dataclass(slots=True)
class _Seen:
    """What the parts have told so far. Times of the clock."""

    first_s: float | None = None
    last_s: float | None = None
    parts: int = 0
    choices: bool = False
    usage: _Usage = field(default_factory=_Usage)
    other: str = ""
    """What came that was no part of an answer."""
    failed: bool = False

    def take(self, data: bytes, now_s: float) -> None:
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except msgspec.DecodeError:
            self.other = self.other or _described(data)
            return
        self.usage = chunk.usage or self.usage
        self.failed = self.failed or bool(chunk.error)
        if chunk.choices is None:
            self.other = self.other or _described(data)
            return
        self.choices = True
        if any(choice.says for choice in chunk.choices):
            self.parts += 1
            self.first_s = self.first_s if self.first_s is not None else now_s
            self.last_s = now_s


async def read(response: httpx.Response, began_s: float, clock: Callable[[], float], header: str) -> Answer:
    """The answer whose headers have come. Raises what httpx raises where it breaks off."""
    headers = response.headers
    if response.status_code != httpx.codes.OK:
        words = _words(await response.aread())
        return Answer(response.status_code, Failure.STATUS, words, session=headers.get(header))
    seen, whole = _Seen(), not headers.get("content-type", "").startswith("text/event-stream")
    if whole:
        seen.take(await response.aread(), clock())
    else:
        async for data in _events(response):
            seen.take(data, clock())
    if not seen.choices:
        kind = headers.get("content-type", "no content type").partition(";")[0]
        return Answer(200, Failure.NO_CHOICES, f"{kind}, {seen.other or 'empty'}", session=headers.get(header))
    if seen.failed:
        return Answer(200, Failure.BROKEN, "an error in the middle of a stream", session=headers.get(header))
    return _answer(seen, began_s, clock(), headers, header, streamed=not whole)


def _answer(
    seen: _Seen, began_s: float, now_s: float, headers: httpx.Headers, header: str, *, streamed: bool
) -> Answer:
    """A model that said nothing (its first token ends the answer) has said so when the answer ended."""
    first_s = seen.first_s if seen.first_s is not None else now_s
    lasted_s = (seen.last_s or first_s) - first_s
    tokens = seen.usage.completion_tokens or seen.parts
    details = seen.usage.prompt_tokens_details
    return Answer(
        status=200,
        ttft_s=first_s - began_s,
        itl_s=lasted_s / (tokens - 1) if streamed and seen.parts > 1 and tokens > 1 else None,
        streamed=streamed and not (seen.parts >= AT_ONCE_CHUNKS and lasted_s < AT_ONCE_S),
        prompt_tokens=seen.usage.prompt_tokens,
        cached_tokens=details.cached_tokens if details is not None else None,
        answer_tokens=seen.usage.completion_tokens,
        session=headers.get(header),
        replica=headers.get(REPLICA),
        decision=headers.get(DECISION),
    )


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each server-sent event but the last, `[DONE]`."""
    async for line in response.aiter_lines():
        if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
            yield data.encode()


def _described(data: bytes) -> str:
    """What it is, without what it says."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "no JSON"
    if isinstance(value, dict):
        return f"a JSON object with {', '.join(sorted(map(str, value))[:8]) or 'nothing in it'}"
    return f"JSON, but a {type(value).__name__}"


def _words(body: bytes) -> str:
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode("utf-8", "replace").strip()
        return "" if text.startswith("<") else text.partition("\n")[0][:SHOWN]
    error = refusal.error
    words = error.message if isinstance(error, _Words) else error or refusal.message
    return (words or (refusal.detail if isinstance(refusal.detail, str) else ""))[:SHOWN].rstrip(".")
