"""Messages as an engine hands them to its chat template, whatever the template says.

vLLM (renderers/chat_utils.py, `_parse_chat_message_content` and `_postprocess_messages`) makes a missing content an
empty one and the results of tools texts, gives templates that know no lists of parts their texts joined by line
breaks, and the arguments of tool calls as objects. What it does only in some versions (the role `developer` made
`system`) is not done here: a file says what the template does, the engine says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

import msgspec

from homing.core.template.sentinels import Message, parts


class Takes(Enum):
    """The contents that a template shows."""

    TEXT = auto()
    LISTS = auto()
    BOTH = auto()


def prepared(messages: Sequence[Message], takes: Takes) -> list[dict[str, object]]:
    """New messages; the given ones stay as they are."""
    return [_prepared(message, takes) for message in messages]


def _prepared(message: Message, takes: Takes) -> dict[str, object]:
    ready = dict(message)
    content = ready.get("content")
    takes = Takes.TEXT if message.get("role") == "tool" else takes
    if content is None:
        ready["content"] = [] if takes is Takes.LISTS else ""
    elif isinstance(content, list) and takes is Takes.TEXT:
        ready["content"] = joined(content)
    elif isinstance(content, str) and takes is Takes.LISTS:
        ready["content"] = parts((content,))
    made = ready.pop("tool_calls", None)
    if isinstance(made, list) and made:
        ready["tool_calls"] = [_call(call) for call in made]
    return ready


def joined(content: Sequence[object]) -> object:
    """The texts of parts joined by line breaks; the parts themselves where one is no text."""
    texts = [text_of(part) for part in content]
    return "\n".join(text for text in texts if text is not None) if None not in texts else list(content)


def text_of(part: object) -> str | None:
    """None for an image and the like."""
    if isinstance(part, Mapping):
        part = part.get("text")
    return part if isinstance(part, str) else None


def _call(call: object) -> object:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(given: object) -> object:
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return given if isinstance(given, Mapping) else {}
