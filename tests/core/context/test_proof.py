"""What is looked for in a prompt, and what counts as found."""

from __future__ import annotations

import json

import pytest

from homing.core.context.proof import NoCaseError, case_of, missing

CHAT, MESSAGES, RESPONSES = b"/v1/chat/completions", b"/v1/messages?beta=true", b"/v1/responses"
SYSTEM, DEVELOPER = {"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be brief."}
USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "f"}}


def body(**members: object) -> bytes:
    return json.dumps({"model": "m", **members}).encode()


def test_what_was_said_is_looked_for_in_what_was_sent():
    folded = {"role": "user", "content": "Be kind.\n\nhello"}
    case = case_of(CHAT, body(messages=[SYSTEM, DEVELOPER, USER]), body(messages=[folded], tools=[TOOL]))
    assert (case.texts, case.messages, case.tools) == (("Be kind.", "Be brief."), [folded], [TOOL])


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_are_none(tools: object):
    said = body(messages=[USER], tools=tools)
    assert case_of(CHAT, said, said).tools is None


def test_each_part_of_a_list_is_a_text_and_images_are_left_out():
    image = {"type": "image_url", "image_url": {"url": "http://x"}}
    system = {"role": "system", "content": [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]}
    said = body(messages=[system, {"role": "user", "content": [image, {"type": "text", "text": "what is this?"}]}])
    case = case_of(CHAT, said, said)
    assert case.texts == ("one", "two")
    assert case.messages[1]["content"] == [{"type": "text", "text": "what is this?"}]


def test_what_an_engine_leaves_out_and_what_says_nothing_are_not_looked_for():
    texts = ["x-anthropic-billing-header: cch=1;\nBe kind.", "x-anthropic-billing-header: cch=2;", "  \n", "", None]
    said = body(messages=[{"role": "system", "content": text} for text in texts])
    assert case_of(CHAT, said, said).texts == ("Be kind.",)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (MESSAGES, {"system": [{"type": "text", "text": "Be kind."}], "messages": [USER]}),
        (RESPONSES, {"instructions": "Be kind.", "input": "hello"}),
        (RESPONSES, {"instructions": "Be kind.", "input": [{"role": "user", "content": "hello"}]}),
    ],
)
def test_other_shapes_are_written_as_a_chat(path: bytes, said: dict[str, object]):
    case = case_of(path, body(**said), body(**said))
    assert (case.texts, case.messages) == (("Be kind.",), [SYSTEM, USER])


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TALKED = [
    SYSTEM,
    USER,
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, {**CALL, "id": "2"}]},
    {"role": "tool", "tool_call_id": "1", "content": "one"},
    {"role": "tool", "tool_call_id": "2", "content": "two"},
    {"role": "user", "content": "and?"},
]


def test_calls_and_results_of_tools_in_blocks():
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}
    asked = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Let me see."}, use, {**use, "id": "2"}]
    results = [
        {"type": "tool_result", "tool_use_id": "1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "two"}]},
        {"type": "text", "text": "and?"},
    ]
    said = body(
        system="Be kind.",
        messages=[USER, {"role": "assistant", "content": asked}, {"role": "user", "content": results}],
    )
    assert case_of(MESSAGES, said, said).messages == TALKED


def test_calls_and_results_of_tools_as_items():
    items = [
        USER,
        {"type": "reasoning", "id": "r", "summary": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call", "call_id": "2", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "two"}]},
        {"role": "user", "content": "and?"},
    ]
    said = body(instructions="Be kind.", input=items)
    assert case_of(RESPONSES, said, said).messages == TALKED


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (CHAT, b"no JSON"),
        (CHAT, body(prompt="a completion")),
        (CHAT, body(messages=["text"])),
        (CHAT, body(messages=[USER], tools="none")),
        (b"/v1/embeddings", body(messages=[USER])),
        (RESPONSES, body(input=[{"type": "web_search_call", "id": "1"}])),
        (MESSAGES, body(messages=[{"role": "user", "content": [{"type": "unheard_of"}]}])),
    ],
)
def test_what_cannot_be_rendered_is_no_case(path: bytes, said: bytes):
    with pytest.raises(NoCaseError):
        case_of(path, said, said)


@pytest.mark.parametrize(
    ("prompt", "said", "lost"),
    [
        ("<s>Be kind.</s>", ["Be kind."], 0),
        ("<s>Be kind.</s>", ["  Be kind.\n"], 0),
        ("<s>Be  kind.\nAlways.</s>", ["Be kind. Always."], 0),
        ("<s>Be kind.</s>", ["Be kind.", "Be brief."], 1),
        ("", ["Be kind.", "Be brief."], 2),
        ("", [], 0),
    ],
)
def test_missing(prompt: str, said: list[str], lost: int):
    assert missing(prompt, said) == lost
