"""A conversation of any shape written as a chat, as an engine does before it renders: calls and results of tools become
members and messages of their own. Images, thoughts and the like are left out.

Source: vLLM's entrypoints (anthropic/serving.py, openai/responses/utils.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from homing.core.chat.turn import Kind, Turn, Turns
from homing.core.template.prepared import text_of

Message = dict[str, object]

_UNSAID = frozenset(
    ("image", "document", "thinking", "redacted_thinking", "input_image", "input_file", "image_url", "reasoning")
)


class UnknownPartError(Exception):
    """Something that is not written as a chat here."""


def as_chat(turns: Turns) -> list[Message]:
    """Raises UnknownPartError, msgspec.DecodeError."""
    written: list[Message] = []
    for turn in turns:
        for message in _item(turn) if turn.kind is Kind.ITEMS and turn.bare else _turn(turn):
            last = written[-1] if written else {}
            if turn.bare and message["role"] == last.get("role") == "assistant":  # a call belongs to what was said
                _list(last.setdefault("tool_calls", [])).extend(_list(message["tool_calls"]))
            else:
                written.append(message)
    return written


def _turn(turn: Turn) -> Iterator[Message]:
    content = msgspec.json.decode(turn.content)
    said: list[str] = []
    calls: list[object] = []
    answered = False
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_result":
            answered = True
            yield _result(part.get("tool_use_id"), part.get("content"))
        elif kind == "tool_use":
            calls.append(_call(part.get("id"), part.get("name"), part.get("input")))
        elif (text := text_of(part)) is not None:
            said.append(text)
        elif part is not None and kind not in _UNSAID:
            raise UnknownPartError
    if said or not answered:
        message: Message = {"role": turn.role, "content": "\n".join(said)}
        yield {**message, "tool_calls": calls} if calls else message


def _item(turn: Turn) -> Iterator[Message]:
    item = {name: msgspec.json.decode(value) for name, value in turn.members.items()}
    kind = item.get("type")
    if kind == "function_call":
        call = _call(item.get("call_id"), item.get("name"), item.get("arguments"))
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
    elif kind == "function_call_output":
        yield _result(item.get("call_id"), item.get("output"))
    elif kind not in _UNSAID:
        raise UnknownPartError


def _call(call_id: object, name: object, arguments: object) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(call_id: object, content: object) -> Message:
    parts = content if isinstance(content, list) else [content]
    said = "\n".join(text for part in parts if (text := text_of(part)) is not None)
    return {"role": "tool", "tool_call_id": call_id, "content": said}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
