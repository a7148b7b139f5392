"""Anthropic's calls of tools, which are blocks of an answer, as answers of their own; their results are blocks of the
user's turn behind it."""

from __future__ import annotations

import msgspec

from homing.core.chat.text import Items, items, listed, part_text
from homing.core.chat.turn import NOTHING, Turn, Turns


class _Block(msgspec.Struct):
    type: object = None
    id: msgspec.Raw = NOTHING
    tool_use_id: msgspec.Raw = NOTHING


_block = msgspec.json.Decoder(_Block)


def apart(turns: Turns, at: int, from_text: bool, from_each_other: bool) -> tuple[list[Turn], int]:
    """What becomes of the turn there, and how many are used up."""
    turn = turns[at]
    if turn.role != "assistant" or b'"tool_use"' not in bytes(turn.content):
        return [turn], 1
    blocks = [(block, _read(block)) for block in items(turn.content) or []]
    calls = [(block, bytes(read.id)) for block, read in blocks if read.type == "tool_use"]
    said = [block for block, read in blocks if read.type != "tool_use"]
    text: list[Turn] = []
    if from_text and calls and any(map(part_text, said)):
        text, turn, said = [turn.with_content(listed(said))], turn.with_content(listed([b for b, _ in calls])), []
    if from_each_other and len(calls) > 1 and at + 1 < len(turns):
        pairs = _pairs(turn, said, calls, turns[at + 1])
        if pairs:
            return [*text, *pairs], 2
    return [*text, turn], 1


def _pairs(turn: Turn, said: Items, calls: list[tuple[msgspec.Raw, bytes]], answer: Turn) -> list[Turn]:
    """Each call with its result; what else the user's turn has stays in its last. Empty where a call has no result:
    the engine's matter."""
    left = [(block, _read(block)) for block in (items(answer.content) or [] if answer.brings_results else [])]
    pairs: list[Turn] = []
    for number, (call, call_id) in enumerate(calls, 1):
        results = [block for block, read in left if read.type == "tool_result" and bytes(read.tool_use_id) == call_id]
        if not results:
            return []
        left = [(block, read) for block, read in left if all(block is not result for result in results)]
        rest = [block for block, _ in left] if number == len(calls) else []
        pairs += [turn.with_content(listed([*said, call])), answer.with_content(listed([*results, *rest]))]
        said = []  # the text is told once
    return pairs


def _read(block: msgspec.Raw) -> _Block:
    try:
        return _block.decode(block)
    except msgspec.DecodeError:
        return _Block()
