"""A session's threads as bytes, to be kept outside of the process."""

from __future__ import annotations

import msgspec

from homing.core.chat.turn import Kind, Turn
from homing.core.context.lost import Thread


class MalformedError(ValueError):
    """The bytes are of no thread, or of another version."""


class _Text(msgspec.Struct, array_like=True):
    role: str
    members: dict[str, bytes]
    kind: Kind
    outside: bool


class _Thread(msgspec.Struct, array_like=True):
    unsaid: bytes
    tail: bytes | None
    manner: bytes
    system: bytes
    texts: list[_Text]


_decoder = msgspec.msgpack.Decoder(list[_Thread])


def pack(threads: tuple[Thread, ...]) -> bytes:
    return msgspec.msgpack.encode([_of(thread) for thread in threads])


def unpack(data: bytes) -> tuple[Thread, ...]:
    """The inverse of `pack`. Raises MalformedError."""
    try:
        return tuple(_thread(kept) for kept in _decoder.decode(data))
    except msgspec.DecodeError as error:
        raise MalformedError(str(error)) from error


def _of(thread: Thread) -> _Thread:
    texts = [
        _Text(turn.role, {name: bytes(value) for name, value in turn.members.items()}, turn.kind, turn.outside)
        for turn in thread.texts
    ]
    return _Thread(thread.unsaid, thread.tail, thread.manner, thread.system, texts)


def _thread(kept: _Thread) -> Thread:
    texts = tuple(
        Turn(text.role, {name: msgspec.Raw(value) for name, value in text.members.items()}, text.kind, text.outside)
        for text in kept.texts
    )
    return Thread(kept.unsaid, kept.tail, kept.manner, kept.system, texts)
