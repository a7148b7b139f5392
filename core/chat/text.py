"""Texts as they stand in JSON: joined without being decoded, so that every escape stays as the client wrote it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

BREAK = b"\\n\\n"
"""Between two texts that were two messages."""

Items = list[msgspec.Raw]

_items = msgspec.json.Decoder(Items)


class _Part(msgspec.Struct):
    type: str = "text"
    text: msgspec.Raw = msgspec.Raw(b"")


_part = msgspec.json.Decoder(_Part)


def begins(value: bytes, mark: bytes) -> bool:
    """Raw values have no slices."""
    return memoryview(value)[:1] == mark


def is_nothing(value: bytes) -> bool:
    """No bytes at all, or null."""
    return len(value) in (0, 4) and bytes(value) in (b"", b"null")


def inside(value: bytes) -> bytes | None:
    """What stands between the quotes; None for what is no text."""
    return bytes(memoryview(value)[1:-1]) if begins(value, b'"') else None


def quoted(escaped: bytes) -> msgspec.Raw:
    return msgspec.Raw(b'"%s"' % escaped)


def escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]


def items(value: bytes) -> Items | None:
    """The members of a list; None for what is no list."""
    return _items.decode(value) if begins(value, b"[") else None


def part(escaped_text: bytes, kind: str) -> msgspec.Raw:
    """A text as one part of a content."""
    return msgspec.Raw(b'{"type":"%s","text":"%s"}' % (kind.encode(), escaped_text))


def part_text(value: bytes) -> bytes | None:
    """The text of a part, as it is escaped; None for an image, a file and the like."""
    try:
        read = _part.decode(value)
    except msgspec.DecodeError:
        return inside(value)
    return inside(read.text) if read.type.endswith("text") else None


def texts(content: bytes) -> list[bytes] | None:
    """All that a content says, where it says it in texts alone. None where there is more."""
    whole = inside(content)
    if whole is not None:
        return [whole] if whole else []
    parts = items(content)
    if parts is None:
        return [] if is_nothing(content) else None
    said = [part_text(p) for p in parts]
    return None if None in said else [s for s in said if s]


def joinable(content: bytes) -> bool:
    """Whether it is a text, a list or nothing."""
    return begins(content, b'"') or begins(content, b"[") or is_nothing(content)


def joined(contents: Sequence[msgspec.Raw], kind: str) -> msgspec.Raw | None:
    """Contents as one, with breaks between their texts: a text if all are, else a list whose text parts are of `kind`.
    None where one of them is neither text nor list. Takes time in proportion to what there is."""
    plain = 0
    while plain < len(contents) and begins(contents[plain], b'"'):
        plain += 1
    first = BREAK.join(filter(None, map(inside, contents[:plain])))
    if plain == len(contents):
        return quoted(first)
    parts = [part(first, kind)] if first else []
    for content in contents[plain:]:
        text = inside(content)
        after = _parts(content, text, kind)
        if after is None:
            return None
        if parts and after and part_text(parts[-1]) is not None and part_text(after[0]) is not None:
            # the break goes into what is a new part anyway: marks on the client's parts stay
            if len(parts) == 1 and first:
                parts = [part(first + BREAK, kind)]
            elif text is not None:
                after = [part(BREAK + text, kind)]
            else:
                parts.append(part(BREAK, kind))
        parts += after  # an image between texts parts them well enough
        first = b""
    return listed(parts)


def listed(parts: Items) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(parts))


def _parts(content: bytes, text: bytes | None, kind: str) -> Items | None:
    if text is not None:
        return [part(text, kind)] if text else []
    return [] if is_nothing(content) else items(content)
