"""A content that is a list of texts becomes one text, where a template writes lists as they look in Python.

vLLM does the same where its own look at the template finds that it takes texts. Images stay, and the list with them.
"""

from __future__ import annotations

from homing.core.chat.text import items, quoted, texts
from homing.core.chat.turn import Turn, Turns
from homing.core.template.record import Capabilities


def needed(record: Capabilities) -> bool:
    return not record.content_lists.whole


def apply(turns: Turns, record: Capabilities) -> Turns:
    plain = [_plain(turn) for turn in turns]
    return turns if all(new is old for new, old in zip(plain, turns, strict=True)) else plain


def _plain(turn: Turn) -> Turn:
    if turn.bare or items(turn.content) is None or (said := texts(turn.content)) is None:
        return turn
    return turn.with_content(quoted(b"\\n".join(said)))
