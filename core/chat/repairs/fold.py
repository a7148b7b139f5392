"""System texts into the user's turns: all of them where a template has no system role, else those behind the first
turn where it loses or refuses these.

A text goes into the user's turn that follows it, else to the end of the user's turn before it, else it becomes a user's
turn; it never becomes part of an answer, nor comes between a call and its result. To move it to the front, as vLLM
and some templates do, would change the prompt of every turn before it.
"""

from __future__ import annotations

import msgspec

from homing.core.chat.text import joinable, joined, texts
from homing.core.chat.turn import Turn, Turns
from homing.core.template.record import Capabilities


def all_needed(record: Capabilities) -> bool:
    return not record.system.whole


def later_needed(record: Capabilities) -> bool:
    return record.system.whole and not record.later_system.whole


def fold_all(turns: Turns, record: Capabilities) -> Turns:
    return _folded(turns, 0, record.alternates)


def fold_later(turns: Turns, record: Capabilities) -> Turns:
    first = next((i for i, turn in enumerate(turns) if not turn.is_system), len(turns))
    return _folded(turns, first, record.alternates)


def _folded(turns: Turns, start: int, alternates: bool) -> Turns:
    if not any(turn.is_system for turn in turns[start:]):
        return turns
    folded = list(turns[:start])
    waiting: list[Turn] = []
    for turn in turns[start:]:
        if turn.is_system:
            if texts(turn.content) == []:  # a text that is empty says nothing
                continue
            if waiting and not (joinable(waiting[-1].content) and joinable(turn.content)):  # the engine's matter
                _settle(folded, waiting, alternates)
                waiting = []
            waiting.append(turn)
        elif not waiting or turn.role == "tool":  # results stay with their calls
            folded.append(turn)
        else:
            said = _with(turn, _together(waiting), alternates)
            if said is None:
                _settle(folded, waiting, alternates)
            folded.append(turn if said is None else said)
            waiting = []
    if waiting:
        _settle(folded, waiting, alternates)
    return folded


def _together(waiting: list[Turn]) -> msgspec.Raw:
    whole = joined([turn.content for turn in waiting], waiting[0].text_type) if len(waiting) > 1 else None
    return waiting[0].content if whole is None else whole


def _with(turn: Turn, system: msgspec.Raw, alternates: bool) -> Turn | None:
    """Anthropic's results of tools are a user's turn, which no other may follow where turns alternate."""
    if turn.role != "user" or turn.bare:
        return None
    whole = turn.result_followed_by(system) if alternates else None
    return turn.preceded_by(system) if whole is None else whole


def _settle(folded: list[Turn], waiting: list[Turn], alternates: bool) -> None:
    """No user's turn follows. A user's turn of its own behind a tool's result would break the alternation."""
    last, said = folded[-1] if folded else None, _together(waiting)
    longer = last.result_followed_by(said) if last is not None and alternates else None
    if longer is None and last is not None and last.role == "user" and not last.bare:
        longer = last.followed_by(said)
    if longer is None:
        folded.append(waiting[0].new("user", said))
    else:
        folded[-1] = longer
