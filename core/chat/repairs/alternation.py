"""What a template demands of the order of turns: the user's first, no two of one role in a row, and an answer behind a
tool's result."""

from __future__ import annotations

import msgspec

from homing.core.chat.text import joinable
from homing.core.chat.turn import Turn, Turns
from homing.core.template.record import Capabilities


def merge_needed(record: Capabilities) -> bool:
    return record.alternates


def first_needed(record: Capabilities) -> bool:
    return record.user_first


def answer_needed(record: Capabilities) -> bool:
    return record.alternates and record.tool.whole and record.tool_calls.whole


def answer_between(turns: Turns, record: Capabilities) -> Turns:
    """A question right behind a tool's result (the user broke in) gets an empty answer before it."""
    filled: list[Turn] = []
    for turn in turns:
        apart = turn.results_apart() if turn.role == "user" else None
        if apart is not None:
            filled += [apart[0], _empty_answer(turn), apart[1]]
            continue
        if turn.role == "user" and filled and filled[-1].is_result and not turn.is_result:
            filled.append(_empty_answer(turn))
        filled.append(turn)
    return filled if len(filled) > len(turns) else turns


def _empty_answer(beside: Turn) -> Turn:
    return beside.new("assistant", msgspec.Raw(b'""'))


def merge(turns: Turns, record: Capabilities) -> Turns:
    """Calls of tools stay messages of their own: templates write either the text or the calls of one."""
    rows: list[list[Turn]] = []
    for turn in turns:
        if rows and _alike(rows[-1][-1], turn):
            rows[-1].append(turn)
        else:
            rows.append([turn])
    return [_merged(row) for row in rows] if len(rows) < len(turns) else turns


def first_user(turns: Turns, record: Capabilities) -> Turns:
    """A conversation that begins with an answer (a greeting) gets an empty turn before it."""
    at = next((i for i, turn in enumerate(turns) if not turn.is_system), len(turns))
    if at == len(turns) or turns[at].role != "assistant" or turns[at].bare:
        return turns
    return [*turns[:at], turns[at].new("user", msgspec.Raw(b'""')), *turns[at:]]


def _alike(last: Turn, turn: Turn) -> bool:
    """Whether the two are one turn."""
    if last.role != turn.role or turn.role not in ("user", "assistant"):
        return False
    plain = not (last.bare or turn.bare or last.calls or turn.calls)
    return plain and joinable(last.content) and joinable(turn.content)


def _merged(row: list[Turn]) -> Turn:
    whole = row[0].followed_by(*(turn.content for turn in row[1:])) if len(row) > 1 else None
    return row[0] if whole is None else whole
