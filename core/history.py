"""What a request's body says of its conversation: an id, where the client put one there, and the history of messages.

A client that sends no session id sends the whole conversation with every turn. The prompt of an earlier turn is the
history up to just before one of the assistant's messages, so its digest was seen when that turn was placed.
Shapes: OpenAI's `messages` (chat) and `input` (responses), Anthropic's `messages` with `system`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec
from xxhash import xxh3_128_digest as _digest

from homing.core.chat import NotAnObjectError
from homing.core.prefix.prompt import Marking, Prompt

SHORT_MESSAGE = 32
"""Shorter last messages ("go on") are no sign that two conversations are one."""

MAX_ID_BYTES = 256


_ABSENT = msgspec.Raw(b"")


class _Message(msgspec.Struct, gc=False):
    """One of the messages, or an item of the responses API. What it says beside its content (calls of tools, and whose
    result it is) stands in its own order."""

    role: object = None
    content: object = None
    type: object = None
    tool_calls: object = msgspec.UNSET
    tool_call_id: object = msgspec.UNSET
    name: object = msgspec.UNSET
    arguments: object = msgspec.UNSET
    call_id: object = msgspec.UNSET
    output: object = msgspec.UNSET


class _Members(msgspec.Struct):
    system: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    conversation: msgspec.Raw = _ABSENT
    session_id: msgspec.Raw = _ABSENT
    session_params: msgspec.Raw = _ABSENT
    prompt_cache_key: msgspec.Raw = _ABSENT
    user: msgspec.Raw = _ABSENT


class _Body(_Members):
    """As all clients send it: gone through once."""

    messages: list[_Message] | None = None
    input: list[_Message] | str | None = None


class _OddBody(_Members):
    """Any other."""

    messages: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT


_decoder, _odd_decoder = msgspec.json.Decoder(_Body), msgspec.json.Decoder(_OddBody)

# Claude Code puts a checksum of the whole request into its system text: another one with every turn.
_CHECKSUM = re.compile(r"\bcch=[0-9a-f]+")


class History(msgspec.Struct, frozen=True):
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


class Said(msgspec.Struct, frozen=True):
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
    spoken = _spoken(parsed)
    if not spoken:
        return Said()
    system = _system(parsed)
    return Said(history=_history(system, spoken, seed), prompt=_prompt(bytes(parsed.tools), system, spoken, seed))


def history_of(body: bytes, seed: bytes) -> History | None:
    """The history alone, None where there are no messages. Raises NotAnObjectError."""
    parsed = _parsed(body)
    spoken = _spoken(parsed)
    return _history(_system(parsed), spoken, seed) if spoken else None


def _parsed(body: bytes) -> _Body:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _as_usual(body)


def _as_usual(body: bytes) -> _Body:
    """What is no message is passed over, and what is no list of them."""
    try:
        odd = _odd_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnObjectError(str(error)) from error
    usual = _Body(messages=_messages(_value(odd.messages)), input=_messages(_value(odd.input)))
    for name in _Members.__struct_fields__:
        setattr(usual, name, getattr(odd, name))
    return usual


def _system(parsed: _Body) -> bytes:
    """The system text outside of the messages."""
    return _encoded(_text(_value(parsed.system))) if parsed.system else b""


def _spoken(parsed: _Body) -> list[tuple[str, bytes]]:
    """The role of each message, and all that it says. Read and encoded once, for whoever takes digests of it."""
    messages = parsed.messages or parsed.input
    if not messages or isinstance(messages, str):
        return []
    return [(_role(message), _encoded(_text(message.content) + _calls(message))) for message in messages]


def _prompt(tools: bytes, system: bytes, spoken: Iterable[tuple[str, bytes]], seed: bytes) -> Prompt:
    """In the order in which templates render: tools, system text, messages."""
    marking = Marking(seed)
    if tools:
        marking.add("tools", tools)
    if system:
        marking.add("system", system)
    for role, data in spoken:
        marking.add(role, data)
    return marking.prompt()


def _session(body: _Body, field: str) -> str | None:
    name, _, member = field.partition(".")
    raw = getattr(body, name)
    if not raw:
        return None
    value = _value(raw)
    if isinstance(value, dict):
        value = value.get(member or "id")
    elif member:
        return None
    return value if isinstance(value, str) and 0 < len(value.encode()) <= MAX_ID_BYTES else None


def _history(system: bytes, spoken: Iterable[tuple[str, bytes]], seed: bytes) -> History:
    """Chains of digests, each over the one before: what a message says is gone through once, however many there are.

    Not for proof but for placement, and quick: 128 bits of XXH3 that nobody sees. `seed` has a secret in it, so who
    does not know it aims at nobody else's; whoever finds two messages of his own that look alike mixes up his own."""
    whole, unsaid = _digest(seed), _digest(seed + b"\0")
    if system:
        whole = _digest(b"%bsystem\0%b" % (whole, _digest(system)))
    last: tuple[bytes, int] | None = None  # what was said last but by the system, and how long it is
    earlier: list[tuple[bytes, bytes, bytes | None]] = []
    for role, data in spoken:
        if role == "assistant" and last is not None:
            earlier.append((whole, unsaid, _tail(seed, *last)))
        said = b"%b\0%b" % (role.encode("utf-8", "surrogatepass"), _digest(data))
        whole = _digest(whole + said)
        if role not in ("system", "developer"):
            unsaid = _digest(unsaid + said)
            last = said, len(data)
    earlier.reverse()
    return History(
        whole,
        tuple([digests[0] for digests in earlier]),
        unsaid,
        tuple([digests[1] for digests in earlier]),
        None if last is None else _tail(seed, *last),
        tuple([digests[2] for digests in earlier if digests[2] is not None]),
    )


def _tail(seed: bytes, said: bytes, size_bytes: int) -> bytes | None:
    return _digest(seed + said) if size_bytes >= SHORT_MESSAGE else None


def _encoded(text: str) -> bytes:
    if "=" in text and "cch=" in text:  # looked for by one letter, most texts are passed over ten times as fast
        text = _CHECKSUM.sub("", text)
    return text.encode("utf-8", "surrogatepass")


def _role(message: _Message) -> str:
    """Items of the responses API have a type instead, where they are not messages: the model's, but for results."""
    role = message.role
    if isinstance(role, str):
        return role
    return "tool" if str(message.type or "").endswith("_output") else "assistant"


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


def _calls(message: _Message) -> str:
    """What a message says beside its content."""
    if (
        message.tool_calls is message.tool_call_id is message.name is message.arguments is message.call_id
        is message.output is msgspec.UNSET
    ):  # fmt: skip
        return ""
    members = (message.tool_calls, message.tool_call_id, message.name, message.arguments, message.call_id)
    said = [member for member in (*members, message.output) if member is not msgspec.UNSET]
    return "\x1d" + msgspec.json.encode(said).decode()


def _messages(value: object) -> list[_Message] | None:
    if not isinstance(value, list):
        return None
    return [msgspec.convert(message, _Message) for message in value if isinstance(message, dict)]


def _value(raw: msgspec.Raw) -> object:
    """None for a member that is not there."""
    if not raw:
        return None
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value


def header_safe(session: str) -> bytes:
    """The session's id as a header can carry it: itself, or a digest of it."""
    if session.isascii() and session.isprintable() and session == session.strip():
        return session.encode()
    return b"body-" + blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest().encode()
