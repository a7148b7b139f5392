"""What `/v1/chat/completions`, `/v1/completions` and `/v1/models` answer, field by field as vLLM does."""

from __future__ import annotations

import msgspec

from homing.sim.logprobs import ChatLogprobs, PromptLogprob, TextLogprobs


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int
    created_cache_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    multimodal_tokens: msgspec.UnsetType | None = msgspec.UNSET


class Usage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | msgspec.UnsetType = msgspec.UNSET
    completion_tokens_details: msgspec.UnsetType | None = msgspec.UNSET


class Message(msgspec.Struct):
    content: str
    role: str = "assistant"
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None


class ChatChoice(msgspec.Struct):
    index: int
    message: Message
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    token_ids: list[int] | None = None
    routed_experts: None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    system_fingerprint: str
    usage: Usage
    service_tier: None = None
    prompt_logprobs: None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    metrics: None = None


class DeltaMessage(msgspec.Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: DeltaMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | msgspec.UnsetType | None = msgspec.UNSET  # only in the last chunk of a choice
    token_ids: list[int] | msgspec.UnsetType | None = None  # not in the first


class ChatChunk(msgspec.Struct, kw_only=True):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    system_fingerprint: str | msgspec.UnsetType = msgspec.UNSET
    usage: Usage | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType | None = msgspec.UNSET
    prompt_text: msgspec.UnsetType | None = msgspec.UNSET


class TextChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | msgspec.UnsetType | None = msgspec.UNSET
    routed_experts: msgspec.UnsetType | None = msgspec.UNSET


class TextCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    service_tier: None = None
    system_fingerprint: str
    usage: Usage
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    metrics: None = None


class TextChunk(msgspec.Struct, kw_only=True):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    system_fingerprint: str | msgspec.UnsetType = msgspec.UNSET
    usage: Usage | msgspec.UnsetType = msgspec.UNSET


class Version(msgspec.Struct):
    version: str


class Load(msgspec.Struct):
    server_load: int


class ModelPermission(msgspec.Struct, kw_only=True):
    id: str
    object: str = "model_permission"
    created: int
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: None = None
    is_blocking: bool = False


class ModelCard(msgspec.Struct, kw_only=True):
    id: str
    object: str = "model"
    created: int
    root: str
    max_model_len: int
    owned_by: str = "vllm"
    parent: None = None
    permission: list[ModelPermission]


class ModelList(msgspec.Struct, kw_only=True):
    object: str = "list"
    data: list[ModelCard]
