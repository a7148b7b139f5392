"""Think blocks out of earlier answers, where the file says so: for models that take another family's for text.

Out of all of them, also of the last: a block that is there in one turn and gone in the next would change the prefix.
Templates that strip by themselves need none of this.
"""

from __future__ import annotations

import re

import msgspec

from homing.core.chat.text import inside
from homing.core.chat.turn import Turn, Turns
from homing.core.template.record import Capabilities, Think

# Some templates open the block for the model, so that the answer has its end alone.
BLOCK = re.compile(r"\A\s*(?:<think>)?(?:(?!<think>).)*?</think>\s*", re.DOTALL)


def needed(record: Capabilities) -> bool:
    return record.think is Think.KEPT


def apply(turns: Turns, record: Capabilities) -> Turns:
    stripped = [_stripped(turn) for turn in turns]
    return turns if all(new is old for new, old in zip(stripped, turns, strict=True)) else stripped


def _stripped(turn: Turn) -> Turn:
    raw = bytes(turn.content)
    if turn.role != "assistant" or turn.bare or b"think" not in raw or inside(raw) is None:
        return turn
    try:
        text = msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return turn
    plain = BLOCK.sub("", text, count=1)
    return turn if plain == text else turn.with_content(msgspec.Raw(msgspec.json.encode(plain)))
