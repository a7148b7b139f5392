"""Why the control service's API refuses."""

from __future__ import annotations

import msgspec


class _Untaken(msgspec.Struct):
    """Of FastAPI's list of what it does not take. `loc`: the way to it."""

    loc: list[str | int]
    msg: str


class _Refusal(msgspec.Struct):
    detail: str | list[_Untaken]


def detail(body: bytes) -> str:
    """In a line, empty where `body` does not say."""
    try:
        said = msgspec.json.decode(body, type=_Refusal).detail
    except msgspec.MsgspecError:
        return ""
    if isinstance(said, str):
        return said
    return "; ".join(": ".join([*map(str, each.loc[-1:]), each.msg.removeprefix("Value error, ")]) for each in said)
