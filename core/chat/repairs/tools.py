"""Calls and results of tools for templates that lose them: written out as text, in the form that most open models were
trained on.
"""

from __future__ import annotations

import msgspec

from homing.core.chat.text import escaped, items, listed, part, quoted, texts
from homing.core.chat.turn import Kind, Turn, Turns
from homing.core.template.record import Capabilities


class _Function(msgspec.Struct):
    name: str = ""
    arguments: object = None


class _Call(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Item(msgspec.Struct):
    """A call or a result, as a block or as an item."""

    type: str = ""
    name: str = ""
    input: object = None
    arguments: object = None
    content: object = None
    output: object = None


_calls = msgspec.json.Decoder(list[_Call])
_item = msgspec.json.Decoder(_Item)


def needed(record: Capabilities) -> bool:
    return not (record.tool.whole and record.tool_calls.whole)


def apply(turns: Turns, record: Capabilities) -> Turns:
    written = [_written(turn) for turn in turns]
    return turns if all(new is old for new, old in zip(written, turns, strict=True)) else written


def _written(turn: Turn) -> Turn:
    try:
        match turn.kind:
            case Kind.CHAT:
                return _message(turn)
            case Kind.BLOCKS:
                return _blocks(turn)
            case Kind.ITEMS:
                return _bare(turn)
    except (msgspec.DecodeError, RecursionError):
        return turn


def _message(turn: Turn) -> Turn:
    if turn.role == "tool":
        said = texts(turn.content)
        return turn if said is None else turn.new("user", quoted(_result(b"\\n".join(said))))
    if turn.role != "assistant" or not turn.calls:
        return turn
    calls = _calls.decode(turn.members["tool_calls"])
    text = b"\\n".join(_call(call.function.name, call.function.arguments) for call in calls)
    whole = turn.followed_by(quoted(text))
    return turn if whole is None else whole.without("tool_calls")


def _blocks(turn: Turn) -> Turn:
    blocks = items(turn.content)
    if blocks is None or b"tool_" not in bytes(turn.content):
        return turn
    written = [_block(block) for block in blocks]
    same = all(new is old for new, old in zip(written, blocks, strict=True))
    return turn if same else turn.with_content(listed(written))


def _block(block: msgspec.Raw) -> msgspec.Raw:
    item = _item.decode(block)
    if item.type == "tool_use":
        return part(_call(item.name, item.input), "text")
    if item.type == "tool_result" and (said := _said(item.content)) is not None:
        return part(_result(said), "text")
    return block


def _bare(turn: Turn) -> Turn:
    if not turn.bare:
        return turn
    item = _item.decode(msgspec.json.encode(turn.members))
    if item.type == "function_call":
        return turn.new("assistant", quoted(_call(item.name, item.arguments)))
    if item.type == "function_call_output" and (said := _said(item.output)) is not None:
        return turn.new("user", quoted(_result(said)))
    return turn


def _said(content: object) -> bytes | None:
    return None if content is None else b"\\n".join(texts(msgspec.json.encode(content)) or ()) or None


def _call(name: str, arguments: object) -> bytes:
    """`arguments` are JSON in a text, or the object itself."""
    if isinstance(arguments, str):
        arguments = _decoded(arguments)
    said = msgspec.json.encode({"name": name, "arguments": arguments}).decode()
    return escaped(f"<tool_call>\n{said}\n</tool_call>")


def _decoded(arguments: str) -> object:
    try:
        value: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return value


def _result(text: bytes) -> bytes:
    return b"<tool_response>\\n%s\\n</tool_response>" % text
