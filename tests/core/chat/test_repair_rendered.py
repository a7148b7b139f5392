"""Conversations of every order through repair and through published chat templates, rendered as an engine does."""

from __future__ import annotations

import copy
import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_templates import published

from homing.control.templates.environment import Template
from homing.core.chat.body import encode, members
from homing.core.chat.repair import Repairs, Switches
from homing.core.chat.shapes import CHAT, MESSAGES, RESPONSES, Shape
from homing.core.chat.turn import Turn, Turns
from homing.core.context.proof import case_of, missing
from homing.core.template.probe import probe
from homing.core.template.source import ChatTemplate

FAMILIES = (
    ("trl", "qwen2_5"), ("trl", "qwen3"), ("trl", "qwen3_5_think"), ("trl", "qwen3_vl"), ("trl", "deepseek_r1_distill"),
    ("trl", "llama3_1"), ("trl", "gemma"), ("trl", "gemma3"), ("trl", "gemma4"), ("trl", "phi3"), ("trl", "glm4moe"),
    ("trl", "gptoss"), ("trl", "cohere"), ("axolotl", "mistral_v1"), ("axolotl", "mistral_v2v3"),
    ("axolotl", "mistral_v3_tekken"), ("axolotl", "nemotron_h"), ("axolotl", "phi_4"), ("axolotl", "alpaca"),
    ("axolotl", "falcon_h1"), ("axolotl", "exaone4"), ("axolotl", "chatml"),
)  # fmt: skip

Message = dict[str, object]


class Family:
    def __init__(self, wheel: str, name: str) -> None:
        self.template = Template(ChatTemplate(published(wheel, name)))
        self.record = probe(self.template.render, b"seed")
        self.repairs = Repairs.of(self.record, Switches())

    def prompt(self, turns: Turns) -> str:
        return self.template.render([json.loads(encode(turn.members)) for turn in turns])


@cache
def family(of: tuple[str, str]) -> Family:
    return Family(*of)


# What a conversation is made of; each step becomes one or more messages.
STEPS = st.lists(
    st.sampled_from(["system", "developer", "user", "users", "answer", "answers", "tools", "cut"]), max_size=9
)


class Words:
    """Texts that occur once: one word of letters, by which it is found again."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, kind: str) -> str:
        self.told.append(f"{kind}{'xyz'[len(self.told) % 3]}{chr(97 + len(self.told) // 3)}w")
        return self.told[-1]


def call(call_id: str, word: str) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": json.dumps({"word": word})}}


def conversation(steps: list[str], lists: bool) -> tuple[list[Message], list[str]]:
    """Messages that end with a question, and their texts."""
    say, turns = Words(), []

    def add(role: str, kind: str) -> None:
        text = say(kind)
        turns.append({"role": role, "content": [{"type": "text", "text": text}] if lists else text})

    asked = False
    for number, step in enumerate([*steps, "user"]):
        if step in ("system", "developer"):
            add(step, "rule")
        elif step in ("user", "users"):
            for _ in range(1 + (step == "users")):
                add("user", "ask")
            asked = True
        elif step in ("answer", "answers"):
            for _ in range(1 + (step == "answers")):
                add("assistant", "say")
            asked = False
        elif asked:
            for call_ids in [[0], [1, 2]]:
                ids = [f"call_{number}_{i}" for i in call_ids]
                turns.append({"role": "assistant", "content": None, "tool_calls": [call(i, say("call")) for i in ids]})
                turns += [{"role": "tool", "tool_call_id": i, "content": say("found")} for i in ids]
            if step == "tools":
                add("assistant", "say")
                asked = False
    return turns, say.told


def read(messages: list[Message]) -> list[Turn]:
    turns = CHAT.read(members(json.dumps({"messages": messages}).encode()))
    assert turns is not None
    return turns


def as_json(turns: Turns) -> list[Message]:
    return [json.loads(encode(turn.members)) for turn in turns]


@pytest.mark.parametrize("of", FAMILIES, ids=lambda of: of[1])
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, lists=st.booleans())
def test_no_text_is_lost_and_no_template_refuses(of: tuple[str, str], steps: list[str], lists: bool):
    messages, told = conversation(steps, lists)
    turns = read(messages)
    before = copy.deepcopy([dict(turn.members) for turn in turns])
    repaired, done = family(of).repairs.apply(turns)
    assert [dict(turn.members) for turn in turns] == before
    prompt = family(of).prompt(repaired)
    assert [text for text in told if text not in prompt] == []
    assert (repaired is turns) == (done == ())
    again, more = family(of).repairs.apply(repaired)
    assert (again is repaired, more) == (True, ())


def as_blocks(messages: list[Message]) -> Message:
    """The same for Anthropic's API, results of tools together in one turn."""
    written: list[Message] = []
    for message in messages:
        calls, content = message.get("tool_calls"), message["content"]
        if isinstance(calls, list):
            functions = [(each["id"], each["function"]) for each in calls]
            content = [
                {"type": "tool_use", "id": i, "name": f["name"], "input": json.loads(f["arguments"])}
                for i, f in functions
            ]
        if message["role"] != "tool":
            written.append({"role": message["role"], "content": content})
            continue
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
        last = written[-1]["content"]
        if written[-1]["role"] == "user" and isinstance(last, list) and last[0]["type"] == "tool_result":
            last.append(result)
        else:
            written.append({"role": "user", "content": [result]})
    if written[0]["role"] != "system":
        return {"messages": written}
    return {"system": written[0]["content"], "messages": written[1:]}


def as_items(messages: list[Message]) -> Message:
    """The same for the Responses API."""
    written: list[Message] = []
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            written += [{"type": "function_call", "call_id": each["id"], **each["function"]} for each in calls]
        elif message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            written.append({"type": "function_call_output", **output})
        else:
            written.append(message)
    if written[0].get("role") != "system" or not isinstance(written[0]["content"], str):
        return {"input": written}
    return {"instructions": written[0]["content"], "input": written[1:]}


@pytest.mark.parametrize("of", FAMILIES, ids=lambda of: of[1])
@settings(max_examples=40, deadline=None)
@given(steps=STEPS, lists=st.booleans(), shape=st.sampled_from([MESSAGES, RESPONSES]))
def test_nor_in_the_other_shapes(of: tuple[str, str], steps: list[str], lists: bool, shape: Shape):
    messages, told = conversation(steps, lists)
    said = json.dumps(as_blocks(messages) if shape is MESSAGES else as_items(messages)).encode()
    turns = shape.read(members(said))
    assert turns is not None
    repaired, done = family(of).repairs.apply(turns)
    sent = encode(shape.write(members(said), repaired)) if done else said
    case = case_of(shape.path.encode(), said, sent)
    prompt = family(of).template.render(case.messages)
    assert [text for text in told if text not in prompt] == []
    assert missing(prompt, case.texts) == 0
    again = shape.read(members(sent))
    assert again is not None
    assert family(of).repairs.apply(again) == (again, ())


def up_to(prompt: str, text: str) -> str:
    return prompt[: prompt.index(text) + len(text)]


@pytest.mark.parametrize("of", FAMILIES, ids=lambda of: of[1])
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, lists=st.booleans())
def test_what_was_made_of_a_turn_stays_in_the_next(of: tuple[str, str], steps: list[str], lists: bool):
    messages, told = conversation(steps, lists)
    whole, _ = family(of).repairs.apply(read(messages))
    prompt = family(of).prompt(whole)
    for end, message in enumerate(messages):
        before = [m["role"] for m in messages[:end]]
        if message["role"] != "assistant" or "user" not in before or before[-1] == "assistant":
            continue  # no request ended here
        earlier, _ = family(of).repairs.apply(read(messages[:end]))
        assert as_json(whole)[: len(earlier)] == as_json(earlier)
        if family(of).record.stable_history and family(of).record.stable_tools:
            was = family(of).prompt(earlier)
            last = max((text for text in told if text in was), key=was.index)
            assert prompt.startswith(up_to(was, last))
