"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's shape, as vLLM serves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from starlette.responses import Response

from homing.sim.chat_template import RenderOptions
from homing.sim.conversations import Message
from homing.sim.errors import BadRequestError, MalformedError, RequestError
from homing.sim.generation import Delta, Generation
from homing.sim.replica import Replica, new_id
from homing.sim.requests import Sampling, parse
from homing.sim.sequence import FinishReason
from homing.sim.serving import Collected, StreamingAnswer, json_response, named_sse
from homing.sim.tokenizer import TokenIds
from homing.sim.validation import wrong_type

Blocks = list[dict[str, object]]


class Prompt(Sampling, kw_only=True):
    messages: list[dict[str, object]]
    system: str | Blocks | None = None
    stop_sequences: list[str] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(stop for stop in self.stop_sequences or () if stop)


class MessagesRequest(Prompt, kw_only=True):
    max_tokens: int


class ErrorInfo(msgspec.Struct):
    type: str
    message: str


class ErrorBody(msgspec.Struct, kw_only=True):
    type: str = "error"
    error: ErrorInfo


class Usage(msgspec.Struct):
    """Anthropic's: `input_tokens` are those that were neither read from the cache nor added to it."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | msgspec.UnsetType = msgspec.UNSET
    cache_read_input_tokens: int | msgspec.UnsetType = msgspec.UNSET


class TextBlock(msgspec.Struct):
    text: str
    type: str = "text"


class AnswerMessage(msgspec.Struct, kw_only=True):
    id: str
    type: str = "message"
    role: str = "assistant"
    content: list[TextBlock]
    model: str
    stop_reason: str | None = None
    stop_sequence: str | msgspec.UnsetType | None = None
    usage: Usage


class OriginalTokens(msgspec.Struct):
    original_input_tokens: int


class TokenCount(msgspec.Struct):
    input_tokens: int
    context_management: OriginalTokens


class Event(msgspec.Struct, tag_field="type", kw_only=True):
    pass


class MessageStart(Event, tag="message_start", kw_only=True):
    message: AnswerMessage


class BlockStart(Event, tag="content_block_start", kw_only=True):
    index: int = 0
    content_block: TextBlock


class TextDelta(msgspec.Struct):
    text: str
    type: str = "text_delta"


class BlockDelta(Event, tag="content_block_delta", kw_only=True):
    index: int = 0
    delta: TextDelta


class BlockStop(Event, tag="content_block_stop", kw_only=True):
    index: int = 0


class StopDelta(msgspec.Struct):
    stop_reason: str | None
    stop_sequence: str | None


class MessageDelta(Event, tag="message_delta", kw_only=True):
    delta: StopDelta
    usage: Usage


class MessageStop(Event, tag="message_stop", kw_only=True):
    pass


def messages(replica: Replica, body: bytes, headers: Mapping[str, str]) -> MessagesAnswer:
    """Raises RequestError."""
    request = parse(body, MessagesRequest)
    replica.identity.check_model(request.model)
    request.check()
    return MessagesAnswer(replica, request, replica.generation(request, [_prompt(replica, request)]))


def count_tokens(replica: Replica, body: bytes, headers: Mapping[str, str]) -> Response:
    """Raises RequestError."""
    request = parse(body, Prompt)
    replica.identity.check_model(request.model)
    count = len(_prompt(replica, request))
    return json_response(TokenCount(count, OriginalTokens(count)))


def error_body(error: RequestError) -> bytes:
    return msgspec.json.encode(ErrorBody(error=ErrorInfo(error.type, str(error))))


def _prompt(replica: Replica, request: Prompt) -> TokenIds:
    system = request.system
    if isinstance(system, list):
        system = "".join(_text(block) for block in system)
    conversation: list[Message] = [{"role": "system", "content": system}] if system else []
    for number, message in enumerate(request.messages):
        if not isinstance(message.get("content"), str | list):
            location = f"body.messages.{number}.content"
            raise MalformedError(*wrong_type("str | array", location, message.get("content")))
        conversation += _chat_messages(message)
    return replica.tokenizer.encode(replica.template.render(conversation, RenderOptions()), add_special_tokens=False)


def _chat_messages(message: Message) -> Iterator[Message]:
    """One of Anthropic's messages as OpenAI's: tool results are messages of their own there."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(content, list):
        yield {"role": role, "content": content}
        return
    texts, calls = [], []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            texts.append({"type": "text", "text": _text(block)})
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input")}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "tool_result":
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": block.get("content")}
        elif kind not in ("thinking", "redacted_thinking"):
            raise BadRequestError(f"Unsupported content block type: {kind}", "messages")
    if texts or calls:
        yield {"role": role, "content": texts or None, "tool_calls": calls}


def _text(block: object) -> str:
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str):
        raise BadRequestError("A text block needs a `text`.", "messages")
    return text


class MessagesAnswer(StreamingAnswer):
    def __init__(self, replica: Replica, request: MessagesRequest, generation: Generation) -> None:
        super().__init__(generation, stream=bool(request.stream))
        self._model = replica.identity.model
        self._id = new_id("chatcmpl-")
        self._opened = False
        self._stop = StopDelta(None, None)

    def whole(self, collected: list[Collected]) -> bytes:
        (only,) = collected
        message = self._message([TextBlock(only.text)], self._usage())
        stop = _stop(only.finish_reason, only.stop_reason)
        message.stop_reason = stop.stop_reason
        message.stop_sequence = msgspec.UNSET if stop.stop_sequence is None else stop.stop_sequence
        return msgspec.json.encode(message)

    def events(self, delta: Delta) -> Iterator[bytes]:
        if not self._opened:
            self._opened = True
            usage = Usage(self.generation.prompt_tokens, 0)  # vLLM knows of no reuse yet
            yield self._event(MessageStart(message=self._message([], usage)))
            yield self._event(BlockStart(content_block=TextBlock("")))
        if delta.text:
            yield self._event(BlockDelta(delta=TextDelta(delta.text)))
        self._stop = _stop(delta.finish_reason, delta.stop_reason)

    def closing(self) -> Iterator[bytes]:
        yield self._event(BlockStop())
        yield self._event(MessageDelta(delta=self._stop, usage=self._usage()))
        yield self._event(MessageStop())

    def _message(self, content: list[TextBlock], usage: Usage) -> AnswerMessage:
        return AnswerMessage(id=self._id, content=content, model=self._model, usage=usage)

    def _usage(self) -> Usage:
        sequence = self.generation.reported(streamed=False)
        read, created = sequence.cached_tokens, sequence.created_tokens
        return Usage(sequence.prompt_tokens - read - created, self.generation.output_tokens, created, read)

    def _event(self, event: Event) -> bytes:
        return named_sse(str(event.__struct_config__.tag), event)


def _stop(finish_reason: str | None, stop_reason: str | None) -> StopDelta:
    if finish_reason == FinishReason.LENGTH:
        return StopDelta("max_tokens", None)
    if stop_reason is not None:
        return StopDelta("stop_sequence", stop_reason)
    return StopDelta(None if finish_reason is None else "end_turn", None)
