"""Whether a system text was lost, changed or left out on purpose, by what clients really send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from homing.core.chat.body import members
from homing.core.chat.shapes import CHAT, MESSAGES, Shape
from homing.core.context.lost import THREADS, Finding, Judgement, Sessions, Spoken, Thread, judge
from homing.core.history import read

Body = dict[str, object]

RULES = {"role": "system", "content": "You are the assistant of ACME. Answer in short sentences."}
U1 = {"role": "user", "content": "How do I return a pair of shoes that does not fit me?"}
A1 = {"role": "assistant", "content": "Use the form in the parcel, then bring it to any post office."}
U2 = {"role": "user", "content": "And how long does it take until I have my money back then?"}
A2 = {"role": "assistant", "content": "Within five days after the parcel has come back."}
U3 = {"role": "user", "content": "What about the postage? Do I get that back as well, please?"}


@dataclass
class Session:
    shape: Shape = CHAT
    remember: bool = True
    threads: tuple[Thread, ...] = ()
    judgements: list[Judgement] = field(default_factory=list)

    def say(self, **body: object) -> Finding:
        raw = json.dumps(body).encode()
        parsed = members(raw)
        turns, history = self.shape.read(parsed), read(raw, (), b"seed").history
        assert turns is not None
        assert history is not None
        judgement = judge(self.threads, Spoken.of(parsed, turns, history), self.remember)
        self.threads = judgement.threads
        self.judgements.append(judgement)
        return judgement.finding

    def says(self, *turns: Sequence[object]) -> list[Finding]:
        return [self.say(messages=list(messages)) for messages in turns]


def test_a_conversation_keeps_its_text():
    assert Session().says([RULES, U1], [RULES, U1, A1, U2], [RULES, U1, A1, U2, A2, U3]) == ["new", "kept", "kept"]


def test_a_text_that_is_gone_is_lost_in_every_turn_until_it_is_back():
    session = Session()
    assert session.says([RULES, U1], [U1, A1, U2], [U1, A1, U2, A2, U3]) == ["new", "lost", "lost"]
    assert [json.loads(bytes(turn.content)) for turn in session.judgements[1].lost] == [RULES["content"]]
    assert session.say(messages=[RULES, U1, A1, U2, A2, U3]) == "kept"


def test_what_was_lost_can_be_put_back_only_where_it_is_remembered():
    for remember in (True, False):
        session = Session(remember=remember)
        session.says([RULES, RULES, U1], [U1, A1, U2])
        assert len(session.judgements[-1].lost) == (2 if remember else 0)


def test_a_gateway_that_trims_cuts_the_text_off_with_the_old_turns():
    assert Session().says([RULES, U1], [RULES, U1, A1, U2], [U2, A2, U3]) == ["new", "kept", "lost"]


def test_one_that_trims_and_keeps_it_loses_nothing():
    assert Session().says([RULES, U1], [RULES, U1, A1, U2], [RULES, U2, A2, U3]) == ["new", "kept", "kept"]


def test_a_client_may_change_its_text():
    other = {"role": "system", "content": "You are a pirate."}
    session = Session()
    assert session.says([RULES, U1], [other, U1, A1, U2], [other, U1, A1, U2, A2, U3]) == ["new", "changed", "kept"]


def test_a_retry_is_the_same_turn():
    assert Session().says([RULES, U1], [RULES, U1]) == ["new", "kept"]


def test_a_branch_or_an_edited_question_is_not_compared():
    edited = {"role": "user", "content": "How do I return a hat?"}
    assert Session().says([RULES, U1], [RULES, U1, A1, U2], [edited, A1, U2]) == ["new", "kept", "new"]


def test_a_conversation_without_a_text_has_nothing_to_lose():
    session = Session()
    assert session.says([U1], [U1, A1, U2]) == ["new", "new"]
    assert session.threads == ()


def test_a_developer_message_counts_and_an_empty_one_does_not():
    assert Session().says([{**RULES, "role": "developer"}, U1], [U1, A1, U2]) == ["new", "lost"]
    assert Session().says([{**RULES, "content": ""}, U1], [U1, A1, U2]) == ["new", "new"]


def test_open_webui_asks_for_title_tags_and_questions_beside_the_conversation():
    history = f"<chat_history>\nUSER: {U1['content']}\nASSISTANT: {A1['content']}\n</chat_history>"
    tasks = [
        f"### Task:\nGenerate {what} for the chat.\n{history}" for what in ("a title", "1-3 tags", "3-5 questions")
    ]
    session = Session()
    assert session.say(messages=[RULES, U1], stream=True) == "new"
    for task in tasks:
        side: Body = {"messages": [{"role": "user", "content": task}], "stream": False, "max_completion_tokens": 1000}
        assert session.say(**side) == "new"
    assert session.say(messages=[RULES, U1, A1, U2], stream=True) == "kept"
    assert session.say(messages=[U1, A1, U2, A2, U3], stream=True) == "lost"


def test_librechat_asks_for_a_title_with_a_text_of_its_own():
    title = [{"role": "system", "content": "Provide a concise, 5-word-or-less title for the conversation."},
             {"role": "user", "content": f"User: {U1['content']}\nAI: {A1['content']}"}]  # fmt: skip
    session = Session()
    assert session.says([RULES, U1], title, [RULES, U1, A1, U2]) == ["new", "new", "kept"]


def test_claude_codes_side_requests_and_reminders():
    def system(checksum: str) -> list[dict[str, str]]:
        billing = f"x-anthropic-billing-header: cc_version=2.1; cch={checksum};"
        return [{"type": "text", "text": billing}, {"type": "text", "text": "You are Claude Code."}]

    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    session = Session(MESSAGES)
    main: Body = {"tools": tools, "stream": True}
    assert session.say(system=system("aa11"), messages=[U1], **main) == "new"
    topic = "Analyze if this message indicates a new conversation topic."
    assert session.say(system=topic, messages=[U1], stream=True) == "side"
    assert session.say(messages=[{"role": "user", "content": "quota"}], max_tokens=1) == "new"
    assert session.say(system=system("bb22"), messages=[U1, A1, U2], **main) == "kept"
    reminder = {"role": "system", "content": "The date has changed."}
    assert session.say(system=system("cc33"), messages=[U1, A1, U2, A2, reminder, U3], **main) == "kept"
    assert session.say(messages=[U1, A1, U2, A2, U3], **main) == "lost"


def test_a_summary_of_the_history_asks_in_another_manner():
    ask = {"role": "user", "content": "Create a summary of the conversation above:"}
    tools = [{"type": "function", "function": {"name": "search"}}]
    session = Session()
    assert session.say(messages=[RULES, U1, A1, U2], tools=tools) == "new"
    assert session.say(messages=[U1, A1, U2, A2, ask]) == "side"
    summary = {"role": "system", "content": "Summary of the conversation earlier: shoes, five days."}
    assert session.say(messages=[RULES, summary, U2, A2, U3], tools=tools) == "changed"


def test_another_shape_of_request_is_not_compared_since_its_text_stands_elsewhere():
    session = Session(MESSAGES)
    assert session.say(system=RULES["content"], messages=[U1]) == "new"
    session.shape = CHAT
    assert session.says([U1, A1, U2]) == ["side"]


def test_langgraphs_summary_leaves_the_last_exchange_out():
    ask = {"role": "user", "content": "Create a summary of the conversation above:"}
    session = Session()
    assert session.says([RULES, U1, A1, U2], [U1, A1, ask]) == ["new", "new"]


def test_codex_compacts_with_the_same_instructions():
    ask = {"role": "user", "content": "You are performing a CONTEXT CHECKPOINT COMPACTION."}
    session = Session()
    assert session.says([RULES, U1], [RULES, U1, A1, ask]) == ["new", "kept"]


def test_threads_are_bounded():
    session = Session()
    for i in range(THREADS + 5):
        session.say(messages=[RULES, {"role": "user", "content": f"{i}"}])
    assert len(session.threads) == THREADS


@pytest.fixture
def thread() -> Thread:
    session = Session()
    session.say(messages=[RULES, U1])
    return session.threads[0]


def test_sessions_end_when_they_are_idle_or_too_many(thread: Thread):
    sessions = Sessions(10.0, 2)
    for i, name in enumerate((b"a", b"b", b"c")):
        sessions.put(name, (thread,), float(i))
    assert [sessions.get(name, 3.0) for name in (b"a", b"b", b"c")] == [(), (thread,), (thread,)]
    assert sessions.get(b"b", 11.0) == ()
    sessions.put(b"d", (thread,), 20.0)
    assert len(sessions) == 1


def test_texts_are_bounded_in_bytes_and_let_the_body_go(thread: Thread):
    assert thread.size_bytes == sum(len(value) for value in thread.texts[0].members.values())
    sessions = Sessions(100.0, 100, max_bytes=3 * thread.size_bytes)
    for i in range(10):
        sessions.put(b"%d" % i, (thread,), float(i))
    assert (len(sessions), sessions.size_bytes) == (3, 3 * thread.size_bytes)
    sessions.put(b"9", (), 10.0)
    sessions.forget(b"8")
    assert sessions.size_bytes == thread.size_bytes
