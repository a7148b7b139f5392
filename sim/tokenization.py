"""`POST /tokenize` of a text or a chat, and `POST /detokenize`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from homing.sim.chat import chat_prompt
from homing.sim.errors import MalformedError
from homing.sim.replica import Replica
from homing.sim.requests import ChatRequest, parse
from homing.sim.serving import json_response
from homing.sim.tokenizer import token_ids
from homing.sim.validation import missing


class TextRequest(msgspec.Struct):
    prompt: str
    model: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class TokensRequest(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


class Kind(msgspec.Struct):
    """Which of the two a request to `/tokenize` is."""

    prompt: str | msgspec.UnsetType = msgspec.UNSET
    messages: list[object] | msgspec.UnsetType = msgspec.UNSET


class ChatToTokenize(ChatRequest, kw_only=True):
    return_token_strs: bool | None = None


class Tokenized(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(msgspec.Struct):
    prompt: str


def tokenize(replica: Replica, body: bytes, headers: Mapping[str, str]) -> Response:
    """Raises RequestError."""
    kind = parse(body, Kind)
    if kind.messages is not msgspec.UNSET:
        chat = parse(body, ChatToTokenize)
        replica.identity.check_model(chat.model)
        ids, strings = chat_prompt(replica, chat), chat.return_token_strs
    elif kind.prompt is not msgspec.UNSET:
        text = parse(body, TextRequest)
        replica.identity.check_model(text.model)
        ids, strings = (
            replica.tokenizer.encode(text.prompt, add_special_tokens=text.add_special_tokens),
            text.return_token_strs,
        )
    else:
        given = msgspec.json.decode(body)
        raise MalformedError(missing("body.prompt", given), missing("body.messages", given))
    answer = Tokenized(len(ids), replica.identity.max_model_len, list(ids))
    if strings:
        answer.token_strs = [replica.tokenizer.token_name(token) for token in ids]
    return json_response(answer)


def detokenize(replica: Replica, body: bytes, headers: Mapping[str, str]) -> Response:
    """Raises RequestError."""
    request = parse(body, TokensRequest)
    replica.identity.check_model(request.model)
    replica.check_ids(request.tokens, "body.tokens")
    known = token_ids(token for token in request.tokens if token < replica.tokenizer.vocab_size)
    return json_response(Detokenized(replica.tokenizer.decode(known, skip_special_tokens=False)))
