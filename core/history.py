"""What a request's body says of its conversation: an id, where the client put one there, and the history of messages.

A client that sends no session id sends the whole conversation with every turn. The prompt of an earlier turn is the
history up to just before one of the assistant's messages, so its digest was seen when that turn was placed.
Shapes: OpenAI's `messages` (chat) and `input` (responses), Anthropic's `messages` with `system`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from homing.core.chat import NotAnObjectError
from homing.core.prefix.prompt import Marking, Prompt

DIGEST_BYTES = 16
SHORT_MESSAGE = 32
"""Shorter last messages ("go on") are no sign that two conversations are one."""

MAX_ID_BYTES = 256


_ABSENT = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    messages: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    conversation: msgspec.Raw = _ABSENT
    session_id: msgspec.Raw = _ABSENT
    session_params: msgspec.Raw = _ABSENT
    prompt_cache_key: msgspec.Raw = _ABSENT
    user: msgspec.Raw = _ABSENT


_decoder = msgspec.json.Decoder(_Body)

# Claude Code puts a checksum of the whole request into its system text: another one with every turn.
_CHECKSUM = re.compile(r"\bcch=[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class History:
    """Digests of one request's prompt and of its earlier turns' prompts, the longest first.

    `unsaid` are the same without the system text; `tails` stand for the last message of a prompt alone. Both tell why
    a conversation was not recognised, and place nobody.
    """

    prompt: bytes
    earlier: tuple[bytes, ...]
    unsaid: bytes
    unsaid_earlier: tuple[bytes, ...]
    tail: bytes | None
    earlier_tails: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What a body tells: `session` from one of its fields, else the `history` and the `prompt`, if it has messages."""

    session: str | None = None
    history: History | None = None
    prompt: Prompt | None = None


def read(body: bytes, fields: Sequence[str], seed: bytes) -> Said:
    """`fields`: the body's members that may name a session, in order, `a.b` for a member of a member. `seed` keeps
    pools and tenants apart. Raises NotAnObjectError."""
    parsed = _parsed(body)
    for field in fields:
        if (session := _session(parsed, field)) is not None:
            return Said(session=session)
    system, messages = _told(parsed)
    if not messages:
        return Said()
    return Said(history=_history(system, messages, seed), prompt=_prompt(bytes(parsed.tools), system, messages, seed))


def history_of(body: bytes, seed: bytes) -> History | None:
    """The history alone, None where there are no messages. Raises NotAnObjectError."""
    system, messages = _told(_parsed(body))
    return _history(system, messages, seed) if messages else None


def _parsed(body: bytes) -> _Body:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnObjectError(str(error)) from error


def _told(parsed: _Body) -> tuple[str, list[dict[str, object]]]:
    """The system text outside of the messages, and these."""
    return _stable(_text(_value(parsed.system))), _list(parsed.messages) or _list(parsed.input)


def _prompt(tools: bytes, system: str, messages: Sequence[dict[str, object]], seed: bytes) -> Prompt:
    """In the order in which templates render: tools, system text, messages."""
    marking = Marking(seed)
    if tools:
        marking.add("tools", tools.decode("utf-8", "replace"))
    if system:
        marking.add("system", system)
    for message in messages:
        marking.add(_role(message), _stable(_text(message.get("content")) + _calls(message)))
    return marking.prompt()


def _session(body: _Body, field: str) -> str | None:
    name, _, member = field.partition(".")
    value = _value(getattr(body, name))
    if isinstance(value, dict):
        value = value.get(member or "id")
    elif member:
        return None
    return value if isinstance(value, str) and 0 < len(value.encode()) <= MAX_ID_BYTES else None


def _history(system: str, messages: Sequence[dict[str, object]], seed: bytes) -> History:
    whole, unsaid = blake2b(seed, digest_size=DIGEST_BYTES), blake2b(seed + b"\0", digest_size=DIGEST_BYTES)
    if system:
        whole.update(_framed("system", system))
    earlier: list[bytes] = []
    unsaid_earlier: list[bytes] = []
    tails: list[bytes] = []
    tail: bytes | None = None
    for message in messages:
        role, text = _role(message), _text(message.get("content")) + _calls(message)
        if role == "assistant" and tail is not None:
            earlier.append(whole.digest())
            unsaid_earlier.append(unsaid.digest())
            tails.append(tail)
        if role in ("system", "developer"):
            whole.update(_framed(role, _stable(text)))
            continue
        frame = _framed(role, text)
        whole.update(frame)
        unsaid.update(frame)
        tail = blake2b(seed + b"\1" + frame, digest_size=DIGEST_BYTES).digest() if len(text) >= SHORT_MESSAGE else b""
    return History(
        whole.digest(),
        tuple(reversed(earlier)),
        unsaid.digest(),
        tuple(reversed(unsaid_earlier)),
        tail or None,
        tuple(t for t in reversed(tails) if t),
    )


def _stable(text: str) -> str:
    return _CHECKSUM.sub("", text) if "cch=" in text else text


def _role(message: dict[str, object]) -> str:
    """Items of the responses API have a type instead, where they are not messages: the model's, but for results."""
    role = message.get("role")
    if isinstance(role, str):
        return role
    return "tool" if str(message.get("type", "")).endswith("_output") else "assistant"


def _framed(role: str, text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"%s\0%d\0%s" % (role.encode("utf-8", "surrogatepass"), len(data), data)


def _text(content: object) -> str:
    """The text of a content, as a string or in parts: clients change between the two, and move `cache_control`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\x1e".join(map(_part, content))


def _part(part: object) -> str:
    if isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            return text
        part = {key: value for key, value in part.items() if key != "cache_control"}
    return msgspec.json.encode(part).decode()


def _calls(message: dict[str, object]) -> str:
    """What a message says beside its content: calls of tools, and whose result it is."""
    said = [
        message[key]
        for key in ("tool_calls", "tool_call_id", "name", "arguments", "call_id", "output")
        if key in message
    ]
    return "\x1d" + msgspec.json.encode(said).decode() if said else ""


def _list(raw: msgspec.Raw) -> list[dict[str, object]]:
    value = _value(raw)
    return [m for m in value if isinstance(m, dict)] if isinstance(value, list) else []


def _value(raw: msgspec.Raw) -> object:
    """None for a member that is not there."""
    if not raw:
        return None
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value


def header_safe(session: str) -> bytes:
    """The session's id as a header can carry it: itself, or a digest of it."""
    if session.isascii() and session.isprintable() and session == session.strip():
        return session.encode()
    return b"body-" + blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest().encode()
