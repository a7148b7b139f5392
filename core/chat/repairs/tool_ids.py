"""Ids of nine letters or digits, where a template takes no others. A call and its result get the same one, made from
the client's alone, so that it is the same in every turn."""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec

from homing.core.chat.body import Members
from homing.core.chat.text import begins, items, listed
from homing.core.chat.turn import Kind, Turn, Turns
from homing.core.template.record import Capabilities, ToolIds

NINE = re.compile(rb'"[A-Za-z0-9]{9}"')
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_members = msgspec.json.Decoder(Members)


def needed(record: Capabilities) -> bool:
    return record.tool_ids is ToolIds.NINE


def apply(turns: Turns, record: Capabilities) -> Turns:
    renamed = [_renamed(turn) for turn in turns]
    return turns if all(new is old for new, old in zip(renamed, turns, strict=True)) else renamed


def nine(client_id: str) -> str:
    number = int.from_bytes(blake2b(client_id.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    made = ""
    for _ in range(9):
        number, digit = divmod(number, len(DIGITS))
        made += DIGITS[digit]
    return made


def _renamed(turn: Turn) -> Turn:
    members = turn.members
    match turn.kind:
        case Kind.CHAT:
            members = _in_list(_one(members, "tool_call_id"), "tool_calls", "id")
        case Kind.BLOCKS:
            members = _in_list(members, "content", "id", "tool_use_id")
        case Kind.ITEMS:
            members = _one(members, "call_id")
    return turn if members is turn.members else Turn(turn.role, members, turn.kind, turn.outside, turn.bare)


def _one(members: Members, name: str) -> Members:
    raw = members.get(name)
    if raw is None or not begins(raw, b'"') or NINE.fullmatch(raw):
        return members
    try:
        return {**members, name: msgspec.Raw(msgspec.json.encode(nine(msgspec.json.decode(raw, type=str))))}
    except msgspec.DecodeError:
        return members


def _in_list(members: Members, name: str, *ids: str) -> Members:
    """Of each item only a member that is an id of a call: a block's `id` is one in `tool_use` alone."""
    parts = items(members.get(name, b""))
    if not parts or (name == "content" and b"tool_" not in bytes(members[name])):
        return members
    renamed = [_item(part, ids) for part in parts]
    if all(new is old for new, old in zip(renamed, parts, strict=True)):
        return members
    return {**members, name: listed(renamed)}


def _item(part: msgspec.Raw, ids: tuple[str, ...]) -> msgspec.Raw:
    try:
        members = _members.decode(part)
    except msgspec.DecodeError:
        return part
    changed = members
    for name in ids:
        changed = _one(changed, name)
    return part if changed is members else msgspec.Raw(msgspec.json.encode(changed))
