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
    by_id: dict[bytes, Items] = {}
    rest: list[tuple[msgspec.Raw, bytes | None]] = []
    for block in items(answer.content) or [] if answer.brings_results else []:
        read = _read(block)
        result_of = bytes(read.tool_use_id) if read.type == "tool_result" else None
        rest.append((block, result_of))
        if result_of is not None:
            by_id.setdefault(result_of, []).append(block)
    pairs: list[Turn] = []
    for call, call_id in calls:
        results = by_id.pop(call_id, None)
        if results is None:
            return []
        pairs += [turn.with_content(listed([*said, call])), answer.with_content(listed(results))]
        said = []  # the text is told once
    left = [block for block, result_of in rest if result_of is None or result_of in by_id]
    if left:
        pairs[-1] = answer.with_content(listed([*(items(pairs[-1].content) or []), *left]))
    return pairs


def _read(block: msgspec.Raw) -> _Block:
    try:
        return _block.decode(block)
    except msgspec.DecodeError:
        return _Block()
