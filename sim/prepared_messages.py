"""What vLLM makes of messages before the chat template sees them.

Source: vllm/renderers/chat_utils.py (`_parse_chat_message_content`, `_postprocess_messages`) and vllm/renderers/hf.py
(`_convert_developer_to_system`, `_consolidate_system_messages`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from homing.sim.conversations import Message
from homing.sim.errors import BadRequestError


def prepared(messages: Sequence[Message], template: str) -> list[dict[str, object]]:
    """New messages. Raises BadRequestError."""
    ready = [_flat(message) for message in messages]
    if any(message["role"] == "developer" for message in ready) and not _knows_developers(template):
        return _with_one_system(ready)
    return ready


def _knows_developers(template: str) -> bool:
    return "'developer'" in template or '"developer"' in template


def _with_one_system(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    """Developer's messages become system ones, and all of those one at the front."""
    roles = ("system", "developer")
    texts = [str(message["content"]) for message in messages if message["role"] in roles and message["content"]]
    others = [message for message in messages if message["role"] not in roles]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]


def _flat(message: Message) -> dict[str, object]:
    """vLLM's `string` content format: text parts joined by line breaks, nothing as an empty text."""
    role = message.get("role")
    if not isinstance(role, str):
        raise BadRequestError("Each message needs a `role`.", "messages")
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(_part_text(part) for part in content)
    elif content is not None and not isinstance(content, str):
        raise BadRequestError("`content` must be text or a list of parts.", "messages")
    flat = {**message, "content": content or ""}
    calls = flat.pop("tool_calls", None)
    if isinstance(calls, list) and calls:
        flat["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
    return flat


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            return text
        raise BadRequestError(f"Unknown part type: {part.get('type')}", "messages")
    raise BadRequestError("A content part must be an object.", "messages")


def _with_parsed_arguments(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}
