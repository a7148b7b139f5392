"""What homing reads and changes in a request's body. Everything it does not change stays as it came."""

from __future__ import annotations

import msgspec

_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NotAnObjectError(ValueError):
    """The body is not a JSON object, or is nested deeper than anybody reads."""


def model_of(body: bytes) -> str | None:
    """The model the body names (of duplicate keys the last), None where it names none or not by a string.

    Raises NotAnObjectError.
    """
    raw = _members(body).get("model")
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
    members = _members(body)
    members["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(members)


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _top_level.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnObjectError(str(error)) from error
