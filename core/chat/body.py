"""A body's members, each as the bytes that came."""

from __future__ import annotations

import json

import msgspec

Members = dict[str, msgspec.Raw]

_top_level = msgspec.json.Decoder(Members)


class NotAnObjectError(ValueError):
    """The body is not a JSON object, or is nested deeper than anybody reads."""


def model_of(body: bytes) -> str | None:
    """The model the body names (of duplicate keys the last), None where it names none or not by a string.

    Raises NotAnObjectError.
    """
    return named(members(body))


def named(of: Members) -> str | None:
    """The model that a body of these members names."""
    raw = of.get("model")
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


def with_model(body: bytes, model: str) -> bytes:
    """The same body for another model name. The bytes of every other value stay; the spaces between members go.

    Of duplicate members the last stays, in the first's place, as Python's parser has it. Raises NotAnObjectError.
    """
    changed = members(body)
    changed["model"] = msgspec.Raw(msgspec.json.encode(model))
    return encode(changed)


def members(body: bytes) -> Members:
    """Raises NotAnObjectError."""
    try:
        return _top_level.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnObjectError(str(error)) from error


def may_be_read_elsewhere(body: bytes) -> bool:
    """Of a body that `members` refuses: whether an engine may take it for an object. Theirs are Python's parser, which
    takes other encodings, NaN and halves of surrogate pairs too. How deep it reads depends on its release."""
    try:
        return isinstance(json.loads(body), dict)
    except RecursionError:
        return True
    except ValueError:
        return False


def encode(of: Members) -> bytes:
    """The inverse of `members`, but for the spaces between them."""
    return msgspec.json.encode(of)
