"""Several system messages at the front become one, where a template keeps only one of them or refuses more."""

from __future__ import annotations

from itertools import takewhile

from homing.core.chat.turn import Turns
from homing.core.template.record import Capabilities


def needed(record: Capabilities) -> bool:
    return record.system.whole and not record.systems.whole


def apply(turns: Turns, record: Capabilities) -> Turns:
    leading = list(takewhile(lambda turn: turn.is_system, turns))
    if len(leading) < 2:
        return turns
    merged = leading[0].followed_by(*(turn.content for turn in leading[1:]))
    if merged is None:  # neither text nor list: the engine's matter
        return turns
    return [merged, *turns[len(leading) :]]
