"""Think blocks out of earlier answers, where the file says so: for models that take another family's for text.

Out of all of them, also of the last: a block that is there in one turn and gone in the next would change the prefix.
Templates that strip by themselves need none of this.
"""

from __future__ import annotations

import msgspec

from homing.core.chat.body import Members, encode
from homing.core.chat.text import inside, items, listed, part_text
from homing.core.chat.turn import Turn, Turns
from homing.core.template.record import Capabilities, Think

BEGIN, END = "<think>", "</think>"

_members = msgspec.json.Decoder(Members)


def needed(record: Capabilities) -> bool:
    return record.think is Think.KEPT


def apply(turns: Turns, record: Capabilities) -> Turns:
    stripped = [_stripped(turn) for turn in turns]
    return turns if all(new is old for new, old in zip(stripped, turns, strict=True)) else stripped


def without_block(answer: str) -> str:
    """Some templates open the block for the model, so that the answer has its end alone."""
    thought, end, rest = answer.partition(END)
    thought = thought.lstrip().removeprefix(BEGIN)
    return answer if not end or BEGIN in thought else rest.lstrip()


def _stripped(turn: Turn) -> Turn:
    raw = bytes(turn.content)
    if turn.role != "assistant" or turn.bare or b"think" not in raw:
        return turn
    if inside(raw) is not None:
        plain = _plain(raw)
        return turn if plain is None else turn.with_content(plain)
    parts = items(raw)
    if not parts or part_text(parts[0]) is None or (first := _plain_part(parts[0])) is None:
        return turn
    return turn.with_content(listed([first, *parts[1:]]))


def _plain_part(part: msgspec.Raw) -> msgspec.Raw | None:
    """None where there is no block at its beginning."""
    if inside(part) is not None:
        return _plain(part)
    members = _members.decode(part)
    plain = _plain(members["text"])
    return None if plain is None else msgspec.Raw(encode({**members, "text": plain}))


def _plain(text: bytes) -> msgspec.Raw | None:
    try:
        said = msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return None
    plain = without_block(said)
    return None if plain == said else msgspec.Raw(msgspec.json.encode(plain))
