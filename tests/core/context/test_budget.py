"""What fits, what is refused, and what is left out."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.chat.body import members
from homing.core.chat.shapes import CHAT, MESSAGES, Shape
from homing.core.chat.turn import Turn
from homing.core.context.budget import Budget, Over

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def read(said: list[dict[str, object]], shape: Shape = CHAT) -> list[Turn]:
    turns = shape.read(members(json.dumps({"messages": said}).encode()))
    assert turns is not None
    return turns


def says(*said: tuple[str, int]) -> list[dict[str, object]]:
    return [{"role": role, "content": "x" * size} for role, size in said]


def roles(turns: object) -> list[str]:
    return [turn.role for turn in turns]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "over"),
    [
        ({}, None),
        ({"max_tokens": 50}, None),
        ({"max_tokens": 51}, Over(100, 50, 51)),
        ({"max_completion_tokens": 60, "max_tokens": 1}, Over(100, 50, 60)),
        ({"max_tokens": "many"}, None),
        ({"tools": ["t" * 480]}, Over(100, 110, 0)),
    ],
)
def test_what_is_refused(body: dict[str, object], over: Over | None):
    turns = read(says(("system", 100), ("user", 300)))
    assert Budget(100).over(members(json.dumps(body).encode()), turns) == over


def test_the_message_says_by_how_much():
    assert Over(100, 80, 30).message == (
        "This model's maximum context length is 100 tokens. However, the request has at least 80 tokens in its messages"
        " and asks for 30 in the answer, at least 10 too many. Please shorten the messages or the answer."
    )


def test_images_are_not_text_and_escapes_are_not_six_letters():
    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * 10_000}}
    assert Budget(100).over({}, read([{"role": "user", "content": [image]}])) is None
    assert Budget(100).over({}, read([{"role": "user", "content": "é" * 266}])) is None
    assert Budget(100).over({}, read([{"role": "user", "content": "é" * 270}])) == Over(100, 101, 0)


def test_the_oldest_exchanges_go_and_system_messages_stay():
    said = says(
        ("system", 30), ("user", 90), ("assistant", 90), ("system", 3), ("user", 90), ("assistant", 90), ("user", 90)
    )
    kept = Budget(120, trims=True).trim({}, read(said))
    assert roles(kept) == ["system", "system", "user", "assistant", "user"]
    assert len(Budget(80, trims=True).trim({}, read(said))) == 3
    assert roles(Budget(1, trims=True).trim({}, read(said))) == ["system", "system", "user"]


def test_calls_go_with_their_results():
    said = [
        *says(("user", 90)),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "x" * 90},
        *says(("assistant", 30), ("user", 30)),
    ]
    assert roles(Budget(80, trims=True).trim({}, read(said))) == ["user"]


def test_a_result_goes_with_its_call_also_where_the_user_spoke_between_them():
    said = [
        *says(("user", 90)),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        *says(("user", 90)),
        {"role": "tool", "tool_call_id": "c", "content": "x" * 90},
        *says(("assistant", 30), ("user", 30)),
    ]
    assert roles(Budget(120, trims=True).trim({}, read(said))) == ["user"]
    assert roles(Budget(120, trims=True).trim({}, read(said[:-2]))) == ["user", "assistant", "user", "tool"]


def test_anthropics_results_are_no_question():
    said = [
        *says(("user", 90)),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "4"}]},
        *says(("assistant", 30), ("user", 30)),
    ]
    assert roles(Budget(40, trims=True).trim({}, read(said, MESSAGES))) == ["user"]


def test_the_beginning_stays_for_many_turns():
    said = says(("system", 30))
    beginnings = []
    for _ in range(60):
        said += says(("user", 30), ("assistant", 30))
        kept = Budget(400, trims=True).trim({}, read([*said, *says(("user", 30))]))
        beginnings.append(len(said) + 1 - len(kept))
    moves = [a != b for a, b in pairwise(beginnings)]
    assert sum(moves) == 9
    assert beginnings[-1] > 0


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.integers(0, 200)), min_size=1, max_size=12), st.integers(1, 300))  # fmt: skip
def test_only_whole_exchanges_go(said: list[tuple[str, int]], limit: int):
    turns = read(says(*said))
    kept = Budget(limit, trims=True).trim({}, turns)
    assert [t for t in kept if t.is_system] == [t for t in turns if t.is_system]
    rest = [t for t in turns if not t.is_system]
    left = [t for t in kept if not t.is_system]
    assert left == rest[len(rest) - len(left) :]
    if len(left) < len(rest):
        assert left[0].role == "user"
        assert rest[len(rest) - len(left) - 1].role != "user"
