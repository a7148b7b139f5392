"""What `/v1/responses` answers, whole and as events (OpenAI's Responses API, the fields that vLLM fills)."""

from __future__ import annotations

import msgspec


class CachedTokens(msgspec.Struct):
    cached_tokens: int


class ReasoningTokens(msgspec.Struct):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class OutputText(msgspec.Struct):
    text: str
    type: str = "output_text"
    annotations: tuple[()] = ()
    logprobs: None = None


class OutputMessage(msgspec.Struct):
    id: str
    content: list[OutputText]
    status: str
    type: str = "message"
    role: str = "assistant"


class IncompleteDetails(msgspec.Struct):
    reason: str


class ResponseObject(msgspec.Struct, kw_only=True):
    id: str
    object: str = "response"
    created_at: int
    status: str
    model: str
    output: list[OutputMessage]
    instructions: str | None
    previous_response_id: str | None
    max_output_tokens: int
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    error: None = None
    parallel_tool_calls: bool = True
    tool_choice: str = "auto"
    tools: tuple[()] = ()
    system_fingerprint: str  # the sim's own: which replica answered


class Event(msgspec.Struct, tag_field="type", kw_only=True):
    sequence_number: int


class Created(Event, tag="response.created", kw_only=True):
    response: ResponseObject


class InProgress(Event, tag="response.in_progress", kw_only=True):
    response: ResponseObject


class ItemAdded(Event, tag="response.output_item.added", kw_only=True):
    output_index: int = 0
    item: OutputMessage


class PartAdded(Event, tag="response.content_part.added", kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0
    part: OutputText


class TextDelta(Event, tag="response.output_text.delta", kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0
    delta: str
    logprobs: tuple[()] = ()


class TextDone(Event, tag="response.output_text.done", kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0
    text: str
    logprobs: tuple[()] = ()


class PartDone(Event, tag="response.content_part.done", kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0
    part: OutputText


class ItemDone(Event, tag="response.output_item.done", kw_only=True):
    output_index: int = 0
    item: OutputMessage


class Completed(Event, tag="response.completed", kw_only=True):
    response: ResponseObject
