"""The user's own conversations, in the two formats."""

import json

import pytest

from homing.core.verify.conversation import Message
from homing.core.verify.recorded import DataError, recorded


def openai(turns: int) -> list[dict[str, str]]:
    said = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        said += [{"role": "user", "content": f"q{turn}"}, {"role": "assistant", "content": f"a{turn}"}]
    return said


def lines(*records: object) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def test_sharegpt_is_unrolled_turn_by_turn():
    said = [{"from": who, "value": f"{who}{i}"} for i in range(4) for who in ("human", "gpt")]
    (conversation,) = recorded(json.dumps([{"id": "x", "conversations": said}]).encode()).conversations
    assert [len(prompt) for prompt in conversation.turns] == [1, 3, 5, 7]
    assert conversation.turns[1] == (
        Message("user", "human0"),
        Message("assistant", "gpt0"),
        Message("user", "human1"),
    )


def test_an_assistant_that_speaks_first_is_left_out():
    said = [{"from": "gpt", "value": "hi"}]
    said += [{"from": who, "value": "x"} for _ in range(4) for who in ("human", "gpt")]
    (conversation,) = recorded(json.dumps([{"conversations": said}]).encode()).conversations
    assert conversation.turns[0] == (Message("user", "x"),)


def test_openai_lines_are_unrolled_and_keep_their_system_message():
    (conversation,) = recorded(lines({"messages": openai(4)})).conversations
    assert [prompt[0] for prompt in conversation.turns] == [Message("system", "Be brief.")] * 4
    assert [prompt[-1].content for prompt in conversation.turns] == ["q0", "q1", "q2", "q3"]


def test_requests_of_one_session_are_its_turns_as_they_were_sent():
    sent = [{"session_id": s, "messages": openai(n)[:-1]} for n in (1, 2, 3, 4) for s in ("a", "b")]
    one, other = recorded(lines(*sent)).conversations
    assert one == other
    assert [len(prompt) for prompt in one.turns] == [2, 4, 6, 8]


def test_a_batch_file_and_texts_in_parts_are_read():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [*openai(3), {"role": "user", "content": parts}]
    (conversation,) = recorded(lines({"custom_id": "1", "body": {"messages": messages}})).conversations
    assert conversation.turns[3][-1] == Message("user", "one\ntwo")


@pytest.mark.parametrize(
    "messages",
    [
        openai(3),
        [*openai(4), {"role": "tool", "content": "x"}],
        [*openai(4), {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}],
        [*openai(4), {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [],
    ],
    ids=["three turns", "a tool's result", "a tool's call", "an image", "nothing"],
)
def test_what_is_short_or_not_all_text_is_left_out_and_counted(messages):
    found = recorded(lines({"messages": messages}, {"messages": openai(4)}))
    assert (len(found.conversations), found.left_out) == (1, 1)


def test_a_record_of_another_form_is_left_out_in_a_list_and_in_lines():
    good = {"messages": openai(4)}
    bad = {"messages": 4}
    assert recorded(lines(good, bad)).left_out == 1
    assert recorded(json.dumps([bad, good, 7]).encode()).left_out == 2


def test_a_line_that_is_no_json_is_named():
    with pytest.raises(DataError, match=r"^line 3: "):
        recorded(lines({"messages": openai(4)}) + b"\n\n{nonsense\n")
    with pytest.raises(DataError):
        recorded(b"[{]")
