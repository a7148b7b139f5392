"""Calls of tools as messages of their own: apart from the text of the answer, where a template shows only one of the
two, and apart from each other, each with its result behind it, where a template takes one call at a time.

Only of the chat shape: the others have them as blocks and items, which the engine puts together.
"""

from __future__ import annotations

import msgspec

from homing.core.chat.text import Items, items, listed, texts
from homing.core.chat.turn import NOTHING, Kind, Turn, Turns
from homing.core.template.record import Capabilities


class _Call(msgspec.Struct):
    id: object = None


_call = msgspec.json.Decoder(_Call)


def needed(record: Capabilities) -> bool:
    return record.tool_calls.whole and (_text_apart(record) or not record.parallel_calls.whole)


def apply(turns: Turns, record: Capabilities) -> Turns:
    apart: list[Turn] = []
    at = 0
    while at < len(turns):
        turn = turns[at]
        at += 1
        if turn.role != "assistant" or turn.kind is not Kind.CHAT or not turn.calls:
            apart.append(turn)
            continue
        results: list[Turn] = []
        while at < len(turns) and turns[at].role == "tool":
            results.append(turns[at])
            at += 1
        apart += _apart(turn, results, record)
    return apart if len(apart) > len(turns) else turns


def _text_apart(record: Capabilities) -> bool:
    """Where turns must alternate, two answers in a row would be refused."""
    return not record.tool_calls_with_content.whole and not record.alternates


def _apart(turn: Turn, results: list[Turn], record: Capabilities) -> list[Turn]:
    text: list[Turn] = []
    if _text_apart(record) and texts(turn.content):
        text, turn = [turn.without("tool_calls")], turn.with_content(NOTHING)
    calls = items(turn.members["tool_calls"]) or []
    if record.parallel_calls.whole or len(calls) < 2:
        return [*text, turn, *results]
    return [*text, *_pairs(turn, calls, results)]


def _pairs(turn: Turn, calls: Items, results: list[Turn]) -> list[Turn]:
    """Results of none of the calls come last, as they came."""
    pairs: list[Turn] = []
    left = list(results)
    for call in calls:
        call_id = _id(call)
        pairs.append(turn.with_member("tool_calls", listed([call])))
        pairs += [result for result in left if _id_of_result(result) == call_id]
        left = [result for result in left if _id_of_result(result) != call_id]
        turn = turn.with_content(NOTHING)  # the text is told once
    return [*pairs, *left]


def _id(call: msgspec.Raw) -> object:
    try:
        return _call.decode(call).id
    except msgspec.DecodeError:
        return None


def _id_of_result(result: Turn) -> object:
    return msgspec.json.decode(result.members.get("tool_call_id", NOTHING))
