"""The calls of tools of a Responses request, which are items in a row with their results behind them: each with its
result, since an engine makes one message of calls in a row."""

from __future__ import annotations

from homing.core.chat.turn import NOTHING, Turn, Turns

CALL = b'"function_call"'
RESULT = b'"function_call_output"'


def apart(turns: Turns, at: int) -> tuple[list[Turn], int]:
    """What becomes of the items from there on, and how many are used up. As they are where a call has no result: the
    engine's matter."""
    calls = _row(turns, at, CALL)
    if len(calls) < 2:
        return [turns[at]], 1
    results = _row(turns, at + len(calls), RESULT)
    used = len(calls) + len(results)
    by_id: dict[bytes, list[Turn]] = {}
    for result in results:
        by_id.setdefault(_id(result), []).append(result)
    pairs: list[Turn] = []
    for call in calls:
        own = by_id.pop(_id(call), None)
        if own is None:
            return list(turns[at : at + used]), used
        pairs += [call, *own]
    return [*pairs, *(result for result in results if _id(result) in by_id)], used


def _row(turns: Turns, at: int, kind: bytes) -> list[Turn]:
    end = at
    while end < len(turns) and turns[end].bare and bytes(turns[end].members.get("type", NOTHING)) == kind:
        end += 1
    return list(turns[at:end])


def _id(item: Turn) -> bytes:
    """As it is written."""
    return bytes(item.members.get("call_id", NOTHING))
