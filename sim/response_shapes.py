"""What `/v1/responses` answers, whole and as events (OpenAI's Responses API, the fields that vLLM fills)."""

from __future__ import annotations

import msgspec


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int
    input_tokens_per_turn: tuple[()] = ()
    cached_tokens_per_turn: tuple[()] = ()


class OutputTokensDetails(msgspec.Struct):
    reasoning_tokens: int = 0
    tool_output_tokens: int = 0
    output_tokens_per_turn: tuple[()] = ()
    tool_output_tokens_per_turn: tuple[()] = ()


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class OutputText(msgspec.Struct):
    text: str
    type: str = "output_text"
    annotations: tuple[()] = ()
    logprobs: tuple[()] | None = None  # empty where a part is announced


class OutputMessage(msgspec.Struct):
    id: str
    content: list[OutputText]
    status: str
    type: str = "message"
    role: str = "assistant"
    phase: None = None


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
    metadata: None = None
    parallel_tool_calls: bool = True
    temperature: float = 1.0
    tool_choice: str = "none"
    tools: tuple[()] = ()
    top_p: float = 1.0
    background: bool = False
    max_tool_calls: None = None
    prompt: None = None
    reasoning: None = None
    service_tier: str = "auto"
    text: None = None
    top_logprobs: None = None
    truncation: str = "disabled"
    user: None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    input_messages: None = None
    output_messages: None = None


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
