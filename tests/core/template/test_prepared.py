"""Messages as an engine hands them to a template, by what the template takes."""

from __future__ import annotations

import pytest

from homing.core.template.prepared import Takes, prepared

TWO = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
IMAGE = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "b"}]


def call(arguments: object) -> dict[str, object]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("role", "content", "takes", "expected"),
    [
        ("user", "a", Takes.TEXT, "a"),
        ("user", "a", Takes.BOTH, "a"),
        ("user", "a", Takes.LISTS, TWO[:1]),
        ("user", TWO, Takes.TEXT, "a\nb"),
        ("user", TWO, Takes.BOTH, TWO),
        ("user", TWO, Takes.LISTS, TWO),
        ("user", IMAGE, Takes.TEXT, IMAGE),  # nobody can write that as text
        ("tool", TWO, Takes.LISTS, "a\nb"),
        ("tool", "a", Takes.LISTS, "a"),
        ("assistant", None, Takes.TEXT, ""),
        ("assistant", None, Takes.LISTS, []),
    ],
)
def test_contents(role: str, content: object, takes: Takes, expected: object):
    assert prepared([{"role": role, "content": content}], takes) == [{"role": role, "content": expected}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("no JSON", {}),
        ("[1]", {}),
        (None, {}),
    ],
)
def test_arguments_are_objects(given: object, expected: object):
    (message,) = prepared([{"role": "assistant", "content": "x", "tool_calls": [call(given)]}], Takes.TEXT)
    assert message["tool_calls"] == [call(expected)]


@pytest.mark.parametrize("calls", [None, []])
def test_no_calls_are_no_member(calls: object):
    given = {"role": "assistant", "content": "x", "tool_calls": calls}
    assert prepared([given], Takes.TEXT) == [{"role": "assistant", "content": "x"}]
