"""The conversations that a template is probed with: messages of one marker text each, which is then looked for.

A marker is one word of letters, so that no tokenizer, filter or JSON encoding changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

Message = Mapping[str, object]

CALL_ID_LETTERS = 24  # as long as OpenAI's
NINE_LETTERS = 9
_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")

TOOL: Mapping[str, object] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word."}},
            "required": ["word"],
        },
    },
}


class Marks:
    """Words that nobody who does not know the seed can have written into a template."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        digest = blake2b(self._seed + self._count.to_bytes(4), digest_size=12).hexdigest()
        return digest.translate(_LETTERS)


def says(role: str, content: object) -> Message:
    return {"role": role, "content": content}


def system(content: object) -> Message:
    return says("system", content)


def user(content: object) -> Message:
    return says("user", content)


def assistant(content: object) -> Message:
    return says("assistant", content)


def parts(texts: Sequence[str]) -> list[dict[str, str]]:
    """The same as a list of parts."""
    return [{"type": "text", "text": text} for text in texts]


def thinking(thought: str, answer: str) -> str:
    return f"<think>\n{thought}\n</think>\n\n{answer}"


def calls(*asked: tuple[str, str], content: str | None = None) -> Message:
    """An assistant's message with calls of (id, word)."""
    listed = [
        {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": f'{{"word": "{word}"}}'}}
        for call_id, word in asked
    ]
    return {"role": "assistant", "content": content, "tool_calls": listed}


def result(call_id: str, content: object) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}
