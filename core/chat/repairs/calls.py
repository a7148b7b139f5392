"""Calls of tools as messages of their own: apart from the text of the answer, where a template shows only one of the
two, and apart from each other, each with its result behind it, where a template takes one call at a time.

An engine makes one message of a Responses call and of the text before it, so there only calls are put apart.
"""

from __future__ import annotations

import msgspec

from homing.core.chat.repairs import call_blocks, call_items
from homing.core.chat.text import Items, items, listed, texts
from homing.core.chat.turn import NOTHING, Kind, Turn, Turns
from homing.core.template.record import Capabilities


class _Call(msgspec.Struct):
    id: msgspec.Raw = NOTHING


_call = msgspec.json.Decoder(_Call)


def needed(record: Capabilities) -> bool:
    return record.tool_calls.whole and (_text_apart(record) or not record.parallel_calls.whole)


def apply(turns: Turns, record: Capabilities) -> Turns:
    from_text, from_each_other = _text_apart(record), not record.parallel_calls.whole
    apart: list[Turn] = []
    at = 0
    while at < len(turns):
        match turns[at].kind:
            case Kind.CHAT:
                made, used = _messages(turns, at, from_text, from_each_other)
            case Kind.BLOCKS:
                made, used = call_blocks.apart(turns, at, from_text, from_each_other)
            case Kind.ITEMS:
                made, used = call_items.apart(turns, at) if from_each_other else ([turns[at]], 1)
        apart += made
        at += used
    same = len(apart) == len(turns) and all(new is old for new, old in zip(apart, turns, strict=True))
    return turns if same else apart


def _text_apart(record: Capabilities) -> bool:
    """Where turns must alternate, two answers in a row would be refused."""
    return not record.tool_calls_with_content.whole and not record.alternates


def _messages(turns: Turns, at: int, from_text: bool, from_each_other: bool) -> tuple[list[Turn], int]:
    """What becomes of the turn there, and how many are used up."""
    turn = turns[at]
    if turn.role != "assistant" or not turn.calls:
        return [turn], 1
    end = at + 1
    while end < len(turns) and turns[end].role == "tool":
        end += 1
    results = list(turns[at + 1 : end])
    text: list[Turn] = []
    if from_text and texts(turn.content):
        text, turn = [turn.without("tool_calls")], turn.with_content(NOTHING)
    calls = items(turn.members["tool_calls"]) or []
    if not from_each_other or len(calls) < 2:
        return [*text, turn, *results], end - at
    return [*text, *_pairs(turn, calls, results)], end - at


def _pairs(turn: Turn, calls: Items, results: list[Turn]) -> list[Turn]:
    """Results of none of the calls come last, as they came."""
    pairs: list[Turn] = []
    by_id: dict[bytes, list[Turn]] = {}
    for result in results:
        by_id.setdefault(_id_of_result(result), []).append(result)
    for call in calls:
        pairs.append(turn.with_member("tool_calls", listed([call])))
        pairs += by_id.pop(_id(call), ())
        turn = turn.with_content(NOTHING)  # the text is told once
    return [*pairs, *(result for result in results if _id_of_result(result) in by_id)]


def _id(call: msgspec.Raw) -> bytes:
    """As it is written."""
    try:
        return bytes(_call.decode(call).id)
    except msgspec.DecodeError:
        return bytes(NOTHING)


def _id_of_result(result: Turn) -> bytes:
    return bytes(result.members.get("tool_call_id", NOTHING))
