"""Whether all that the client said as system or developer stands in the prompt.

What was said is read from the request as it came, the prompt is made of the request as it was sent: so a repair that
loses a text is found out too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from homing.core.chat.body import Members, NotAnObjectError, members
from homing.core.chat.shapes import CHAT, Shape, shape_of
from homing.core.chat.text import is_nothing
from homing.core.chat.turn import Turns
from homing.core.context.as_chat import UnknownPartError, as_chat
from homing.core.template.prepared import text_of

_BILLING = "x-anthropic-billing-header"
"""Claude Code's first line: another one with every request, so vLLM leaves it out (renderers/chat_utils.py)."""

_list = msgspec.json.Decoder(list[dict[str, object]])


@dataclass(frozen=True, slots=True)
class Case:
    """`texts` must be in the prompt of `messages` with `tools`."""

    texts: tuple[str, ...]
    messages: list[dict[str, object]]
    tools: list[object] | None


class NoCaseError(Exception):
    """Nothing can be rendered of the request: it is malformed, or of a shape that is not written as messages here."""


def case_of(path: bytes, said: bytes, sent: bytes) -> Case:
    """Of a request to `path` with the body `said` by the client, `sent` to the engine. Raises NoCaseError."""
    shape = shape_of(path)
    try:
        before, after = members(said), members(sent)
        turns_before = shape.read(before) if shape else None
        turns_after = shape.read(after) if shape else None
        if shape is None or turns_before is None or turns_after is None:
            raise NoCaseError
        tools = _list.decode(after["tools"]) if shape is CHAT and not is_nothing(after.get("tools", b"")) else None
        return Case(tuple(_said(turns_before)), _messages(shape, after, turns_after), [*tools] if tools else None)
    except (NotAnObjectError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NoCaseError from None


def missing(prompt: str, said: Sequence[str]) -> int:
    """How many texts are not in the prompt. Templates trim, and tokenizers may write white space otherwise."""
    absent = [text for text in said if text.strip() not in prompt]
    if not absent:
        return 0
    squeezed = " ".join(prompt.split())
    return sum(" ".join(text.split()) not in squeezed for text in absent)


def _said(turns: Turns) -> Iterator[str]:
    for turn in turns:
        if turn.is_system:
            for text in _texts(msgspec.json.decode(turn.content)):
                if text.startswith(_BILLING):
                    text = text.partition("\n")[2]
                if text.strip():
                    yield text


def _texts(content: object) -> Iterator[str]:
    for part in content if isinstance(content, list) else [content]:
        text = text_of(part)
        if text is not None:
            yield text


def _messages(shape: Shape, body: Members, turns: Turns) -> list[dict[str, object]]:
    """As a chat, without images and the like. Raises NoCaseError."""
    if shape is CHAT:
        return [_without_images(message) for message in _list.decode(body["messages"])]
    try:
        return as_chat(turns)
    except UnknownPartError:
        raise NoCaseError from None


def _without_images(message: dict[str, object]) -> dict[str, object]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [part for part in content if text_of(part) is not None]}
