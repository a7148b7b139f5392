"""Texts joined as they stand in JSON."""

from __future__ import annotations

import json
from functools import reduce

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.chat import text
from homing.core.chat.body import members
from homing.core.chat.repair import Repairs, Switches
from homing.core.chat.repairs import call_blocks, call_items, calls
from homing.core.chat.shapes import CHAT, MESSAGES, RESPONSES, Shape
from homing.core.chat.text import joined
from homing.core.template.record import Capabilities, Fate

TEXT = {"type": "text", "text": "x"}
CONTENTS = st.sampled_from(["", "a", None, [], [TEXT], [TEXT, {"type": "image_url"}], [{"type": "image_url"}], "b", 5])


def raw(content: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(content).encode())


@given(st.lists(CONTENTS, min_size=2, max_size=6))
def test_several_are_joined_as_one_after_the_other(contents: list[object]):
    def two(whole: msgspec.Raw | None, content: msgspec.Raw) -> msgspec.Raw | None:
        return None if whole is None else joined((whole, content), "text")

    given_raw = list(map(raw, contents))
    one_by_one = reduce(two, given_raw[1:], given_raw[0])
    whole = joined(given_raw, "text")
    assert (whole is None) == (one_by_one is None)
    assert whole is None or json.loads(bytes(whole)) == json.loads(bytes(one_by_one or b""))


N = 500
STRICT = Capabilities(system=Fate.REFUSED, later_system=Fate.REFUSED, systems=Fate.REFUSED, alternates=True)
ONE_SYSTEM = Capabilities(systems=Fate.REFUSED)
ONE_CALL = Capabilities(parallel_calls=Fate.REFUSED)
IDS = [f"c{i}" for i in range(N)]
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("shape", "record", "turns"),
    [
        (CHAT, STRICT, [{"role": "user", "content": [TEXT]}] * N),
        (CHAT, STRICT, [{"role": "system", "content": [TEXT]}] * N),
        (CHAT, ONE_SYSTEM, [{"role": "system", "content": [TEXT]}] * N),
        (CHAT, ONE_CALL, [
            {"role": "assistant", "tool_calls": [{**CALL, "id": i} for i in IDS]},
            *({"role": "tool", "tool_call_id": i, "content": ""} for i in IDS),
        ]),
        (MESSAGES, ONE_CALL, [
            {"role": "assistant", "content": [{"type": "tool_use", "id": i} for i in IDS]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i} for i in IDS]},
        ]),
        (RESPONSES, ONE_CALL, [
            *({"type": "function_call", "call_id": i} for i in IDS),
            *({"type": "function_call_output", "call_id": i} for i in IDS),
        ]),
    ],
    ids=["questions", "folded", "merged", "calls", "blocks", "items"],
)  # fmt: skip
def test_the_work_is_in_proportion_to_what_there_is(
    monkeypatch: pytest.MonkeyPatch, shape: Shape, record: Capabilities, turns: list[object]
):
    """A request of some thousand turns in a row must not hold up all others."""
    looked = 0

    def counting(module: object, name: str, size: object) -> None:
        real = getattr(module, name)

        def counted(value: object) -> object:
            nonlocal looked
            looked += len(value) if size else 1  # type: ignore[arg-type]
            return real(value)

        monkeypatch.setattr(module, name, counted)

    counting(text, "items", size=True)
    for module, name in ((calls, "_id"), (calls, "_id_of_result"), (call_blocks, "_read"), (call_items, "_id")):
        counting(module, name, size=False)
    body = json.dumps({shape.turns: turns}).encode()
    read = shape.read(members(body))
    assert read is not None
    _, done = Repairs.of(record, Switches()).apply(read)
    assert done
    assert 0 < looked < 3 * len(body)
