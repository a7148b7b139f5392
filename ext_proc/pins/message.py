"""The one form in which pickers tell each other what they know, to siblings and through Redis alike: msgpack."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from homing.core.chains import Served
from homing.core.journal import Digest, Word
from homing.core.placement.load import Place, Vector
from homing.core.placement.underway import FirstToken
from homing.core.prefix.sent import SentPrompt

T = TypeVar("T")

MAX_WORDS = 1000
"""In one message: some 55 KB, and half a millisecond to take in."""

MAX_SERVED = 500
"""In one message: another 15 KB."""

MAX_SENT = 200
"""In one message: up to 40 KB."""

MAX_BYTES = 1 << 20
MAX_PART = 1e12


class MalformedMessageError(Exception):
    """What came is not a message of ours."""


class Message(msgspec.Struct, array_like=True, frozen=True):
    """What `sender` (the name of one run of one picker) says at one moment. Fields are only ever added at the end."""

    sender: str
    words: list[Word]
    load: list[tuple[str, str, Vector]]  # pool, replica, the sender's own part
    served: list[Served] = []  # msgspec copies it
    sent: list[SentPrompt] = []
    firsts: list[FirstToken] = []

    @classmethod
    def of(
        cls,
        sender: str,
        words: list[Word],
        load: dict[Place, Vector],
        served: list[Served],
        sent: list[SentPrompt],
        firsts: list[FirstToken],
    ) -> Message:
        vectors = [(pool, replica, vector) for (pool, replica), vector in load.items()]
        return cls(sender, words, vectors, served, sent, firsts)

    @property
    def news(self) -> bool:
        """Whether there is anything in it beside the load."""
        return bool(self.words or self.served or self.sent or self.firsts)

    def vectors(self) -> dict[Place, Vector]:
        """Without those that cannot be: what is added up would never be right again after a NaN."""
        return {(pool, replica): vector for pool, replica, vector in self.load if _can_be(vector)}


def _can_be(vector: Vector) -> bool:
    parts: tuple[float, ...] = msgspec.structs.astuple(vector)
    return min(parts) >= 0 and sum(parts) < MAX_PART  # the sum with a NaN is one


_message = msgspec.msgpack.Decoder(Message)
_words = msgspec.msgpack.Decoder(list[Word])
_word = msgspec.msgpack.Decoder(Word)
_served = msgspec.msgpack.Decoder(list[Served])
_digests = msgspec.msgpack.Decoder(Annotated[list[Digest], msgspec.Meta(max_length=MAX_WORDS)])

encode = msgspec.msgpack.encode


def decode(data: bytes) -> Message:
    """Raises MalformedMessageError."""
    return _checked(_message, data)


def decode_words(data: bytes) -> list[Word]:
    """Raises MalformedMessageError."""
    return _checked(_words, data)


def decode_word(data: bytes) -> Word:
    """Raises MalformedMessageError."""
    return _checked(_word, data)


def decode_served(data: bytes) -> list[Served]:
    """Raises MalformedMessageError."""
    return _checked(_served, data)


def decode_digests(data: bytes) -> list[bytes]:
    """Raises MalformedMessageError."""
    return _checked(_digests, data)


def _checked(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedMessageError(str(error)) from None
