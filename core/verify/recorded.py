"""The user's own conversations: ShareGPT's JSON, or OpenAI's `messages`, one record to a line or all in a list.

Records that name their session (`session_id` or `conversation_id`) are requests as they were sent: those of one session
are its turns, taken as they are. A record without one is a whole conversation, and each of its users' messages ends a
turn's prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from homing.core.verify.conversation import LEAST_TURNS, Conversation, Message, Prompt

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "developer",
}


class DataError(Exception):
    """The file is none that is understood; says where and why."""


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Chat(msgspec.Struct):
    role: str = ""
    content: str | list[_Part] | None = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"")


class _Said(msgspec.Struct):
    """ShareGPT's."""

    role: str = msgspec.field(name="from", default="")
    value: str = ""


class _Body(msgspec.Struct):
    messages: list[_Chat] = []


class _Record(msgspec.Struct):
    conversations: list[_Said] = []
    messages: list[_Chat] = []
    body: _Body | None = None  # of a file for OpenAI's batches
    session_id: str | None = None
    conversation_id: str | None = None

    @property
    def session(self) -> str | None:
        return self.session_id or self.conversation_id


@dataclass(frozen=True, slots=True)
class Recorded:
    """`left_out`: conversations with parts that are no text (tools, images), with fewer than four turns, or of another
    form."""

    conversations: tuple[Conversation, ...]
    left_out: int


def recorded(data: bytes) -> Recorded:
    """Raises DataError."""
    found: list[Conversation | None] = []
    sessions: dict[str, list[Prompt | None]] = {}
    for record in _records(data):
        messages = _messages(record) if record is not None else None
        if record is not None and (session := record.session) is not None:
            sessions.setdefault(session, []).append(messages)
        else:
            found.append(_unrolled(messages) if messages is not None else None)
    found += [_as_sent(prompts) for prompts in sessions.values()]
    kept = [c for c in found if c is not None and len(c.turns) >= LEAST_TURNS]
    return Recorded(tuple(kept), len(found) - len(kept))


def _records(data: bytes) -> Iterator[_Record | None]:
    """None for JSON that is no record."""
    if data.lstrip()[:1] == b"[":
        try:
            records = msgspec.json.decode(data, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(str(error)) from None
        yield from map(_record, records)
        return
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield _record(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"line {number}: {error}") from None


def _record(data: bytes | msgspec.Raw) -> _Record | None:
    try:
        return msgspec.json.decode(data, type=_Record)
    except msgspec.ValidationError:
        return None


def _messages(record: _Record) -> Prompt | None:
    """None where not all of it is text that somebody says."""
    said: Iterable[Message | None]
    if record.conversations:
        said = (_message(each.role, each.value) for each in record.conversations)
    else:
        chats = record.body.messages if record.body is not None else record.messages
        said = (None if each.tool_calls else _message(each.role, _text(each.content)) for each in chats)
    messages = list(said)
    texts = tuple(message for message in messages if message is not None)
    return texts if len(texts) == len(messages) and texts else None


def _message(role: str, text: str | None) -> Message | None:
    known = _ROLES.get(role)
    return Message(known, text) if known is not None and text is not None else None


def _text(content: str | list[_Part] | None) -> str | None:
    if not isinstance(content, list):
        return content
    return "\n".join(part.text for part in content) if all(part.type == "text" for part in content) else None


def _unrolled(messages: Prompt) -> Conversation:
    """Assistants that speak before any user are left out: templates refuse them."""
    first_user = next((i for i, m in enumerate(messages) if m.role == "user"), len(messages))
    kept = [m for i, m in enumerate(messages) if i >= first_user or m.role != "assistant"]
    return Conversation(tuple(tuple(kept[: i + 1]) for i, m in enumerate(kept) if m.role == "user"))


def _as_sent(prompts: Sequence[Prompt | None]) -> Conversation | None:
    whole = tuple(prompt for prompt in prompts if prompt is not None)
    return Conversation(whole) if len(whole) == len(prompts) else None
