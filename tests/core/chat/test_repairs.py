"""Each repair by a table: a record, what was said, what is said then, and the repairs by name."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from homing.core.chat.body import encode, members
from homing.core.chat.repair import STEPS, Repairs, Switches
from homing.core.chat.repairs.names import Repair
from homing.core.chat.repairs.think import without_block
from homing.core.chat.repairs.tool_ids import nine
from homing.core.chat.shapes import CHAT, MESSAGES, RESPONSES, Shape
from homing.core.template.record import Capabilities, Fate, Think, ToolIds

NO_SYSTEM = Capabilities(system=Fate.REFUSED, systems=Fate.REFUSED, later_system=Fate.REFUSED)
ONE_SYSTEM = Capabilities(systems=Fate.LAST_ONLY, later_system=Fate.DROPPED)
STRICT = Capabilities(alternates=True, user_first=True, later_system=Fate.REFUSED, systems=Fate.REFUSED)
NO_TOOLS = Capabilities(tool=Fate.DROPPED, tool_calls=Fate.DROPPED, tool_calls_with_content=Fate.DROPPED)
ALL = Switches()
NINE = Capabilities(tool_ids=ToolIds.NINE)


def text(*texts: str, kind: str = "text") -> list[dict[str, str]]:
    return [{"type": kind, "text": t} for t in texts]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"word": "x"}'}}
OTHER = {**CALL, "id": "call_2"}
CALLED = '<tool_call>\n{"name":"look","arguments":{"word":"x"}}\n</tool_call>'


@dataclass(frozen=True)
class Case:
    name: str
    record: Capabilities
    said: list[dict[str, object]]
    then: list[dict[str, object]]
    done: tuple[Repair, ...]
    switches: Switches = ALL


def says(*said: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in said]


CASES = [
    Case("developer", Capabilities(developer=Fate.DROPPED), says(("developer", "r"), ("user", "u")), says(("system", "r"), ("user", "u")), (Repair.DEVELOPER,)),
    Case("a family with the role keeps it", Capabilities(), says(("developer", "r"), ("user", "u")), says(("developer", "r"), ("user", "u")), ()),
    Case("no system role", NO_SYSTEM, says(("system", "r"), ("user", "u")), says(("user", "r\n\nu")), (Repair.FOLD_SYSTEM,)),
    Case("no system role, several", NO_SYSTEM, says(("system", "r"), ("system", "s"), ("user", "u"), ("assistant", "a"), ("system", "t"), ("user", "v")), says(("user", "r\n\ns\n\nu"), ("assistant", "a"), ("user", "t\n\nv")), (Repair.FOLD_SYSTEM,)),
    Case("no system role, and nobody asks", NO_SYSTEM, says(("system", "r")), says(("user", "r")), (Repair.FOLD_SYSTEM,)),
    Case("no system role, an answer first", NO_SYSTEM, says(("system", "r"), ("assistant", "a"), ("user", "u")), says(("user", "r"), ("assistant", "a"), ("user", "u")), (Repair.FOLD_SYSTEM,)),
    Case("an empty system text says nothing", NO_SYSTEM, says(("system", ""), ("user", "u")), says(("user", "u")), (Repair.FOLD_SYSTEM,)),
    Case("one that is neither text nor list stays beside the others", NO_SYSTEM, says(("system", "r"), ("system", 5), ("system", "s"), ("user", "u")), says(("user", "r"), ("user", 5), ("user", "s\n\nu")), (Repair.FOLD_SYSTEM,)),
    Case("into a list of parts", NO_SYSTEM, says(("system", "r"), ("user", text("u"))), says(("user", text("r\n\n", "u"))), (Repair.FOLD_SYSTEM,)),
    Case("from a list of parts", NO_SYSTEM, says(("system", text("r", "s")), ("user", "u")), says(("user", text("r", "s", "\n\nu"))), (Repair.FOLD_SYSTEM,)),
    Case("images stay as they are", NO_SYSTEM, says(("system", "r"), ("user", [IMAGE, *text("u")])), says(("user", [*text("r"), IMAGE, *text("u")])), (Repair.FOLD_SYSTEM,)),
    Case("several at the front", ONE_SYSTEM, says(("system", "r"), ("system", "s"), ("user", "u")), says(("system", "r\n\ns"), ("user", "u")), (Repair.MERGE_SYSTEM,)),
    Case("several at the front, as lists", ONE_SYSTEM, says(("system", text("r")), ("system", "s"), ("user", "u")), says(("system", text("r", "\n\ns")), ("user", "u")), (Repair.MERGE_SYSTEM,)),
    Case("a later one into the question that follows", ONE_SYSTEM, says(("system", "r"), ("user", "u"), ("assistant", "a"), ("system", "s"), ("user", "v")), says(("system", "r"), ("user", "u"), ("assistant", "a"), ("user", "s\n\nv")), (Repair.LATER_SYSTEM,)),
    Case("a later one at the end", ONE_SYSTEM, says(("user", "u"), ("system", "s")), says(("user", "u\n\ns")), (Repair.LATER_SYSTEM,)),
    Case("never into an answer", ONE_SYSTEM, says(("user", "u"), ("assistant", "a"), ("system", "s")), says(("user", "u"), ("assistant", "a"), ("user", "s")), (Repair.LATER_SYSTEM,)),
    Case(
        "never between a call and its result", ONE_SYSTEM,
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "system", "content": "s"}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}],
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}, {"role": "user", "content": "s"}],
        (Repair.LATER_SYSTEM,),
    ),
    Case(
        "behind a result where turns alternate", STRICT,
        [*says(("user", "u")), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}, *says(("system", "s"))],
        [*says(("user", "u")), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t\n\ns"}],
        (Repair.LATER_SYSTEM,),
    ),
    Case("two questions in a row", STRICT, says(("user", "u"), ("user", "v"), ("assistant", "a"), ("assistant", "b"), ("user", "w")), says(("user", "u\n\nv"), ("assistant", "a\n\nb"), ("user", "w")), (Repair.MERGE_TURNS,)),
    Case(
        "a question behind a result", STRICT,
        [*says(("user", "u")), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}, *says(("user", "v"))],
        [*says(("user", "u")), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}, *says(("assistant", ""), ("user", "v"))],
        (Repair.EMPTY_ANSWER,),
    ),
    Case("an answer first", STRICT, says(("system", "r"), ("assistant", "a"), ("user", "u")), says(("system", "r"), ("user", ""), ("assistant", "a"), ("user", "u")), (Repair.FIRST_USER,)),
    Case(
        "calls and results written out", NO_TOOLS,
        [*says(("user", "u")), {"role": "assistant", "content": "so", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": text("t")}, *says(("user", "v"))],
        says(("user", "u"), ("assistant", f"so\n\n{CALLED}"), ("user", "<tool_response>\nt\n</tool_response>"), ("user", "v")),
        (Repair.TOOLS_AS_TEXT,),
    ),
    Case(
        "an answer that hides its calls", Capabilities(tool_calls_with_content=Fate.DROPPED),
        [*says(("user", "u")), {"role": "assistant", "content": "so", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}],
        [*says(("user", "u"), ("assistant", "so")), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}],
        (Repair.SPLIT_CALLS,),
    ),
    Case(
        "one call at a time", Capabilities(parallel_calls=Fate.REFUSED),
        [{"role": "assistant", "content": "so", "tool_calls": [CALL, OTHER]}, {"role": "tool", "tool_call_id": "call_2", "content": "2"}, {"role": "tool", "tool_call_id": "call_1", "content": "1"}, *says(("user", "u"))],
        [
            {"role": "assistant", "content": "so", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "1"},
            {"role": "assistant", "content": None, "tool_calls": [OTHER]}, {"role": "tool", "tool_call_id": "call_2", "content": "2"}, *says(("user", "u")),
        ],
        (Repair.SPLIT_CALLS,),
    ),
    Case(
        "ids of nine", NINE,
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "t"}],
        [{"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": nine("call_1")}]}, {"role": "tool", "tool_call_id": nine("call_1"), "content": "t"}],
        (Repair.TOOL_IDS,),
    ),
    Case("ids that have nine stay", NINE, [{"role": "tool", "tool_call_id": "abcDEF123", "content": "t"}], [{"role": "tool", "tool_call_id": "abcDEF123", "content": "t"}], ()),
    Case("a list of texts", Capabilities(content_lists=Fate.DROPPED), says(("user", text("a", "b")), ("user", [IMAGE])), says(("user", "a\nb"), ("user", [IMAGE])), (Repair.CONTENT_TEXT,)),
    Case("think blocks", Capabilities(), says(("assistant", "<think>\nhm\n</think>\n\na"), ("assistant", "hm</think>b"), ("user", "<think>x</think>")), says(("assistant", "a"), ("assistant", "b"), ("user", "<think>x</think>")), (Repair.STRIP_THINK,), Switches(think=True)),
    Case("think blocks in parts", Capabilities(), says(("assistant", text("<think>hm</think>a", "<think>b</think>")), ("assistant", [IMAGE]), ("assistant", ["<think>x</think>c"])), says(("assistant", text("a", "<think>b</think>")), ("assistant", [IMAGE]), ("assistant", ["c"])), (Repair.STRIP_THINK,), Switches(think=True)),
    Case("a template strips by itself", Capabilities(think=Think.STRIPPED), says(("assistant", "<think>hm</think>a"),), says(("assistant", "<think>hm</think>a")), (), Switches(think=True)),
    Case("switched off", NO_SYSTEM, says(("system", "r"), ("user", "u")), says(("system", "r"), ("user", "u")), (), Switches(system=False)),
    Case("roles first", Capabilities(system=Fate.REFUSED, developer=Fate.REFUSED, alternates=True), says(("developer", "r"), ("user", "u"), ("user", "v")), says(("user", "r\n\nu\n\nv")), (Repair.DEVELOPER, Repair.FOLD_SYSTEM, Repair.MERGE_TURNS)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_repair(case: Case):
    read = CHAT.read(members(json.dumps({"messages": case.said}).encode()))
    assert read is not None
    repaired, done = Repairs.of(case.record, case.switches).apply(read)
    assert [json.loads(encode(turn.members)) for turn in repaired] == case.then
    assert done == case.done
    assert (repaired is read) == (done == ())


def test_a_clean_template_needs_nothing():
    assert not Repairs.of(Capabilities(), Switches())
    assert Repairs.of(Capabilities(), Switches(think=True))


def test_every_repair_but_those_of_the_session_and_the_budget_is_a_step():
    assert {step.repair for step in STEPS} == set(Repair) - {Repair.RESTORE_SYSTEM, Repair.TRIM}


def test_ids_of_calls_are_the_same_whenever_and_wherever_they_are_made():
    assert nine("call_1") == "t8wLHgKZJ"
    assert len({nine(f"call_{i}") for i in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("<think>a</think>b", "b"),
        (" \n<think>\na\n</think>\n\n b ", "b "),
        ("a</think>b", "b"),
        ("<think>a</think><think>b</think>c", "<think>b</think>c"),
        ("see <think>a</think>b", "see <think>a</think>b"),
        ("<think>a<think>b</think>c", "<think>a<think>b</think>c"),
        ("<think>a", "<think>a"),
        (" " * 1_000_000 + "think", " " * 1_000_000 + "think"),
    ],
    ids=range(8),
)
def test_the_block_at_the_beginning_is_left_out(answer: str, plain: str):
    assert without_block(answer) == plain


def test_escapes_stay_as_the_client_wrote_them():
    body = rb'{"messages":[{"role":"system","content":"caf\u00e9 \ud83d\ude00 \/"},{"role":"user","content":"\"x\" \u00e9"}]}'
    read = CHAT.read(members(body))
    assert read is not None
    (turn,), _ = Repairs.of(NO_SYSTEM, Switches()).apply(read)
    assert bytes(turn.content) == rb'"caf\u00e9 \ud83d\ude00 \/\n\n\"x\" \u00e9"'


def through(shape: Shape, record: Capabilities, body: dict[str, object]) -> dict[str, object]:
    parsed = members(json.dumps(body).encode())
    read = shape.read(parsed)
    assert read is not None
    repaired, _ = Repairs.of(record, Switches()).apply(read)
    written: dict[str, object] = json.loads(encode(shape.write(parsed, repaired)))
    return written


def test_anthropics_system_goes_into_the_users_turn():
    body = {"model": "m", "system": "r", "max_tokens": 5, "messages": says(("user", "u"))}
    assert through(MESSAGES, NO_SYSTEM, body) == {"model": "m", "max_tokens": 5, "messages": says(("user", "r\n\nu"))}


def test_a_text_goes_behind_anthropics_results():
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "4"}
    said = [*says(("user", "u"), ("assistant", [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]))]
    body = {"system": "r", "messages": [*said, *says(("system", "s"), ("user", [result, *text("v")]))]}
    then = through(MESSAGES, ONE_SYSTEM, body)
    assert then == {"system": "r", "messages": [*said, *says(("user", [result, *text("s\n\n", "v")]))]}


@pytest.mark.parametrize("end", [False, True])
def test_a_text_becomes_part_of_a_result_where_turns_alternate(end: bool):
    called = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "4"}
    said, answered = says(("user", "u"), ("assistant", [called])), says(("user", [result]))
    s = says(("system", "s"))
    body = {"messages": [*said, *answered, *s] if end else [*said, *s, *answered]}
    assert through(MESSAGES, STRICT, body) == {"messages": [*said, *says(("user", [{**result, "content": "4\n\ns"}]))]}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "4"}
    asked = [*says(("user", "u")), call]
    body = {"input": [*asked, output, *s] if end else [*asked, *s, output]}
    assert through(RESPONSES, STRICT, body) == {"input": [*asked, {**output, "output": "4\n\ns"}]}


def test_what_the_user_says_beside_anthropics_results_is_a_question_of_its_own_where_turns_alternate():
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "4"}
    called = [*says(("user", "u")), *says(("assistant", [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]))]
    body = {"messages": [*called, *says(("user", [result, *text("v")]))]}
    assert through(MESSAGES, STRICT, body) == {
        "messages": [*called, *says(("user", [result]), ("assistant", ""), ("user", text("v")))]
    }


def test_anthropics_system_and_one_in_the_list_become_one():
    body = {"system": text("r"), "messages": says(("system", "s"), ("user", "u"))}
    assert through(MESSAGES, ONE_SYSTEM, body) == {"system": text("r", "\n\ns"), "messages": says(("user", "u"))}


def test_anthropics_calls_and_results_are_written_out():
    call, result = (
        {"type": "tool_use", "id": "t", "name": "look", "input": {"word": "x"}},
        {"type": "tool_result", "tool_use_id": "t", "content": text("4")},
    )
    body = {"messages": says(("assistant", [call]), ("user", [result]))}
    assert through(MESSAGES, NO_TOOLS, body) == {
        "messages": says(("assistant", text(CALLED)), ("user", text("<tool_response>\n4\n</tool_response>")))
    }


def test_anthropics_ids_get_nine_letters():
    body = {
        "messages": says(
            ("assistant", [{"type": "tool_use", "id": "toolu_1"}]),
            ("user", [{"type": "tool_result", "tool_use_id": "toolu_1"}]),
        )
    }
    (asked, answered) = through(MESSAGES, NINE, body)["messages"]  # type: ignore[misc]
    assert asked["content"][0]["id"] == answered["content"][0]["tool_use_id"] == nine("toolu_1")


def test_instructions_go_into_the_input():
    body = {"instructions": "r", "input": "u"}
    assert through(RESPONSES, NO_SYSTEM, body) == {"input": says(("user", "r\n\nu"))}


def test_instructions_and_a_system_item_become_one_text():
    body = {"instructions": "r", "input": says(("system", text("s", kind="input_text")), ("user", "u"))}
    assert through(RESPONSES, ONE_SYSTEM, body) == {"instructions": "r\n\ns", "input": says(("user", "u"))}


def test_one_call_at_a_time_in_blocks_and_items_too():
    one, two = ({"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "ab")
    first, second = ({"type": "tool_result", "tool_use_id": i, "content": i} for i in "ab")
    body = {"messages": says(("assistant", [*text("so"), one, two]), ("user", [second, first, *text("u")]))}
    single = Capabilities(parallel_calls=Fate.REFUSED)
    assert through(MESSAGES, single, body)["messages"] == says(
        ("assistant", [*text("so"), one]), ("user", [first]), ("assistant", [two]), ("user", [second, *text("u")])
    )
    hiding = Capabilities(tool_calls_with_content=Fate.DROPPED)
    assert through(MESSAGES, hiding, body)["messages"] == says(
        ("assistant", text("so")), ("assistant", [one, two]), ("user", [second, first, *text("u")])
    )
    unanswered = {"messages": says(("assistant", [one, two]), ("user", [first]))}
    assert through(MESSAGES, single, unanswered) == unanswered
    calls = [{"type": "function_call", "call_id": i, "name": "f", "arguments": "{}"} for i in "ab"]
    outputs = [{"type": "function_call_output", "call_id": i, "output": i} for i in "ba"]
    body = {"input": [*calls, *outputs, *says(("user", "u"))]}
    split = [calls[0], outputs[1], calls[1], outputs[0], *says(("user", "u"))]
    assert through(RESPONSES, single, body) == {"input": split}
    unanswered = {"input": [*calls, outputs[0]]}
    assert through(RESPONSES, single, unanswered) == unanswered


def test_items_without_a_role_stay_and_their_ids_get_nine_letters():
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"word": "x"}'}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    body = {"input": [*says(("user", "u")), call, result]}
    assert through(RESPONSES, STRICT, body) == body
    renamed = through(RESPONSES, NINE, body)["input"]
    assert renamed == [*says(("user", "u")), {**call, "call_id": nine("call_1")}, {**result, "call_id": nine("call_1")}]
    assert through(RESPONSES, NO_TOOLS, body)["input"] == says(
        ("user", "u"), ("assistant", CALLED), ("user", "<tool_response>\n4\n</tool_response>")
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":"hello"}',
        b'{"messages":[1]}',
        b'{"messages":[{"content":"x"}]}',
        b'{"messages":[{"role":5,"content":"x"}]}',
        b'{"prompt":"hello"}',
        b'{"messages":null}',
    ],
)
def test_what_is_no_conversation_is_left_to_the_engine(body: bytes):
    assert CHAT.read(members(body)) is None


@pytest.mark.parametrize(
    "record",
    [NO_SYSTEM, STRICT, NO_TOOLS, NINE, Capabilities(content_lists=Fate.DROPPED, parallel_calls=Fate.REFUSED)],
)
def test_bytes_that_are_no_utf_8_raise_nothing(record: Capabilities):
    odd = b"\xed\xa0\x80"
    call = b'{"id":"%b","type":"tool_use","name":"%b","input":{},"function":{"name":"%b","arguments":"%b"}}' % (
        (odd,) * 4
    )
    result = b'{"type":"tool_result","tool_use_id":"%b","content":"%b"}' % (odd, odd)
    item = b'"call_id":"%b","name":"%b","arguments":"%b","output":"%b"' % ((odd,) * 4)
    turns = (
        b'[{"role":"system","content":"%b"},{"role":"developer","content":[{"type":"text","text":"%b"}]},'
        b'{"role":"assistant","content":"<think>%b</think>","tool_calls":[%b,%b]},'
        b'{"role":"tool","tool_call_id":"%b","content":"%b"},{"role":"assistant","content":[%b,%b]},'
        b'{"role":"user","content":[%b,%b]},{"role":"system","content":"%b"}]'
    ) % (odd, odd, odd, call, call, odd, odd, call, call, result, result, odd)
    items = b'[{"type":"function_call",%b},{"type":"function_call",%b},{"type":"function_call_output",%b}]' % (
        (item,) * 3
    )
    for shape, body in ((CHAT, turns), (MESSAGES, turns), (RESPONSES, items)):
        read = shape.read(members(b'{"%b":%b}' % (shape.turns.encode(), body)))
        assert read is not None
        Repairs.of(record, Switches(think=True)).apply(read)


@pytest.mark.parametrize("content", [5, None, {"a": 1}, [5, None], [[]], True])
@pytest.mark.parametrize(
    "record", [NO_SYSTEM, ONE_SYSTEM, STRICT, NO_TOOLS, NINE, Capabilities(content_lists=Fate.DROPPED)]
)
def test_odd_contents_raise_nothing(record: Capabilities, content: object):
    said = says(("system", content), ("system", "x"), ("user", content), ("user", content), ("assistant", content))
    said += [
        {"role": "assistant", "content": content, "tool_calls": content},
        {"role": "tool", "tool_call_id": content, "content": content},
    ]
    for shape, name in ((CHAT, "messages"), (MESSAGES, "messages"), (RESPONSES, "input")):
        read = shape.read(members(json.dumps({name: said}).encode()))
        assert read is not None
        Repairs.of(record, Switches(think=True)).apply(read)
