"""From a generation to bytes on the wire: whole, or as server-sent events; ended at once when the client leaves."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from homing.sim.errors import UnavailableError
from homing.sim.generation import Delta, Generation
from homing.sim.logprobs import Guess
from homing.sim.sequence import FinishReason
from homing.sim.shapes import PromptTokensDetails, Usage
from homing.sim.tokenizer import TokenIds, token_ids

SHUTTING_DOWN = "The replica is shutting down."

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


@dataclass(slots=True)
class Collected:
    """One choice of an answer that is not streamed."""

    index: int
    text: str = ""
    tokens: TokenIds = field(default_factory=token_ids)
    finish_reason: str | None = None
    stop_reason: str | None = None
    guesses: list[Guess] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.tokens.extend(delta.tokens)
        self.guesses.extend(delta.guesses)
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


class Answer(ABC):
    """An ASGI response over one generation, given when it has ended."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation

    @abstractmethod
    def whole(self, collected: list[Collected]) -> bytes:
        """The body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The engine is not told to wait for a slow client, as in vLLM: what was generated stays in the sequence,
        and goes out in fewer, longer events when the client reads again."""
        watch = asyncio.create_task(_until_disconnect(receive))
        watch.add_done_callback(lambda _: self.generation.abort())
        self.generation.start()
        try:
            await self._send(send)
        finally:
            watch.cancel()
            self.generation.abort()

    async def _send(self, send: Send) -> None:
        collected = [Collected(choice.index) for choice in self.generation.choices]
        async for delta in self.generation.deltas():
            collected[delta.index].add(delta)
        status, body = 200, b""
        if any(choice.finish_reason is FinishReason.ABORT for choice in collected):
            error = UnavailableError(SHUTTING_DOWN)
            status, body = error.status, error.body()
        else:
            body = self.whole(collected)
        headers = [*_JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send(_part(body, more=False))


class StreamingAnswer(Answer):
    """One that can also be given as it comes, in server-sent events."""

    def __init__(self, generation: Generation, *, stream: bool) -> None:
        super().__init__(generation)
        self._stream = stream

    @abstractmethod
    def events(self, delta: Delta) -> Iterator[bytes]: ...

    @abstractmethod
    def closing(self) -> Iterator[bytes]:
        """What follows the last delta of the last choice."""

    async def _send(self, send: Send) -> None:
        if not self._stream:
            await super()._send(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        async for delta in self.generation.deltas():
            if delta.finish_reason is FinishReason.ABORT:
                # The client has left, or the replica is going: vLLM, too, ends a stream with an error event.
                error = UnavailableError(SHUTTING_DOWN).body()
                await send(_part(b"data: " + error + b"\n\ndata: [DONE]\n\n", more=False))
                return
            await send(_part(b"".join(self.events(delta))))
        await send(_part(b"".join(self.closing()), more=False))


def whole_usage(generation: Generation, *, tells_created: bool) -> Usage:
    """`tells_created`: chats say what they added to the cache, completions do not."""
    sequence = generation.reported(streamed=False)
    usage = running_usage(generation)
    usage.completion_tokens_details = None
    usage.prompt_tokens_details = PromptTokensDetails(
        sequence.cached_tokens, sequence.created_tokens if tells_created else None, None
    )
    return usage


def final_usage(generation: Generation, *, tells_created: bool) -> Usage:
    """Of the last event of a stream."""
    sequence = generation.reported(streamed=True)
    usage = running_usage(generation)
    usage.prompt_tokens_details = PromptTokensDetails(sequence.cached_tokens)
    if tells_created:
        usage.prompt_tokens_details.created_cache_tokens = sequence.created_tokens
    return usage


def running_usage(generation: Generation) -> Usage:
    """So far; nothing is said of the cache yet."""
    prompt, output = generation.prompt_tokens, generation.output_tokens
    return Usage(prompt, prompt + output, output)


def json_response(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def sse(event: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def named_sse(name: str, event: msgspec.Struct) -> bytes:
    """With an `event` line, as the newer APIs have it."""
    return b"event: " + name.encode() + b"\n" + sse(event)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(body: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": more}
