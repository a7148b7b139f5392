"""What a body says of its conversation, whatever shape the client gives it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.core.chains import MAX_NEWS, MAX_REPLICAS, Chains, News, Recognition, Served
from homing.core.chat import NotAnObjectError
from homing.core.config.models import BODY_FIELDS
from homing.core.history import History, header_safe, read

SEED = b"seed"
LONG = "a message that is long enough to be told from others"


def history(*messages: tuple[str, object], seed: bytes = SEED, **members: object) -> History:
    body = {"messages": [{"role": role, "content": content} for role, content in messages]} | members
    found = read(json.dumps(body).encode(), BODY_FIELDS, seed).history
    assert found is not None
    return found


def test_the_prompt_of_a_turn_is_an_earlier_one_of_the_next():
    first = history(("system", "s"), ("user", "u1"))
    second = history(("system", "s"), ("user", "u1"), ("assistant", "a1"), ("user", "u2"))
    third = history(
        ("system", "s"), ("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "a2"), ("user", "u3")
    )
    assert first.earlier == ()
    assert second.earlier == (first.prompt,)
    assert third.earlier == (second.prompt, first.prompt)


@pytest.mark.parametrize(
    "other",
    [
        (("system", "t"), ("user", "u1")),
        (("system", "s"), ("user", "u2")),
        (("developer", "s"), ("user", "u1")),
        (("system", "su"), ("user", "1")),
        (("user", "u1"),),
        (("system", "s"), ("user", "u1"), ("user", "u1")),
    ],
)
def test_other_messages_are_another_prompt(other: tuple[tuple[str, str], ...]):
    assert history(*other).prompt != history(("system", "s"), ("user", "u1")).prompt


def test_tenants_and_pools_do_not_share_prompts():
    assert history(("user", "u"), seed=b"a").prompt != history(("user", "u"), seed=b"b").prompt


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": LONG}],
        [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}],
        [{"type": "input_text", "text": LONG}],
    ],
)
def test_clients_that_change_the_shape_of_a_text_between_turns_are_recognised(content: object):
    assert history(("user", content)).prompt == history(("user", LONG)).prompt


def test_images_count_but_not_their_cache_marks():
    def image(url: str, **more: object) -> History:
        return history(("user", [{"type": "image_url", "image_url": {"url": url}} | more]))

    assert image("a").prompt == image("a", cache_control={"type": "ephemeral"}).prompt
    assert image("a").prompt != image("b").prompt


def test_results_and_calls_of_tools_count():
    def called(arguments: str) -> bytes:
        messages = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"arguments": arguments}}]},
            {"role": "tool", "tool_call_id": "1", "content": "r"},
        ]
        found = read(json.dumps({"messages": messages}).encode(), (), SEED).history
        assert found is not None
        return found.prompt

    assert called("{}") != called('{"a":1}')


def test_anthropics_system_is_a_member_of_its_own():
    plain = history(("user", "u"))
    assert history(("user", "u"), system="s").prompt != plain.prompt
    assert (
        history(("user", "u"), system=[{"type": "text", "text": "s"}]).prompt
        == history(("user", "u"), system="s").prompt
    )


def test_the_checksum_that_claude_code_puts_into_its_system_text_is_no_difference():
    def prompt(checksum: str) -> bytes:
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={checksum};"}
        return history(("user", "u"), system=[billing, {"type": "text", "text": "You are"}]).prompt

    assert prompt("0a1b2") == prompt("ffff0")


def test_the_responses_api_has_its_history_in_input():
    def said(*items: dict[str, object]) -> History:
        found = read(json.dumps({"input": items}).encode(), (), SEED).history
        assert found is not None
        return found

    user = {"role": "user", "content": [{"type": "input_text", "text": "u"}]}
    first = said(user)
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    assert said(user, call, {"type": "function_call_output", "call_id": "1", "output": "r"}).earlier == (first.prompt,)
    assert read(b'{"input":"only a text"}', (), SEED).history is None


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({"session_id": "a"}, "a"),
        ({"conversation": "c", "session_id": "a"}, "c"),
        ({"conversation": {"id": "c"}}, "c"),
        ({"session_params": {"session_id": "p"}}, "p"),
        ({"prompt_cache_key": "k"}, "k"),
        ({"prompt_cache_key": "", "session_id": ""}, None),
        ({"session_id": 3}, None),
        ({"session_id": {"other": "x"}}, None),
        ({"session_id": "x" * 257}, None),
        ({"session_params": "p"}, None),
        ({"conversation": None}, None),
        ({"user": "u"}, None),
    ],
)
def test_members_of_the_body_name_a_session(body: dict[str, object], session: str | None):
    assert read(json.dumps(body).encode(), BODY_FIELDS, SEED).session == session


def test_the_user_names_a_session_only_if_told_so():
    assert read(b'{"user":"u"}', ("user",), SEED).session == "u"


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"messages":', b"\xff"])
def test_what_is_no_object_is_said(body: bytes):
    with pytest.raises(NotAnObjectError):
        read(body, BODY_FIELDS, SEED)


@pytest.mark.parametrize("messages", ["text", 3, None, [], [1, "x"], {}])
def test_messages_of_another_shape_are_no_history(messages: object):
    assert read(json.dumps({"messages": messages}).encode(), BODY_FIELDS, SEED).history is None


def test_what_is_no_message_is_passed_over():
    said = {"role": "user", "content": LONG, "name": "n"}
    odd = read(json.dumps({"messages": [1, said, "x"], "session_params": {}}).encode(), BODY_FIELDS, SEED)
    assert odd == read(json.dumps({"messages": [said]}).encode(), BODY_FIELDS, SEED)
    assert odd.history is not None


def test_contents_nested_deeper_than_anybody_reads_are_no_history():
    deep = b'{"messages":[{"role":"user","content":%s}]}' % (b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(NotAnObjectError):
        read(deep, BODY_FIELDS, SEED)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)


@given(
    st.dictionaries(
        st.sampled_from(["messages", "input", "system", "conversation", "session_params", "user"]), json_values
    )
)
def test_no_body_of_json_is_too_odd(body: dict[str, object]):
    read(json.dumps(body).encode(), (*BODY_FIELDS, "user"), SEED)


roles = st.sampled_from(["system", "user", "assistant", "tool"])


@given(st.lists(st.tuples(roles, st.text()), min_size=1), st.lists(st.tuples(roles, st.text())))
def test_a_longer_conversation_has_the_prompts_of_the_shorter_one(
    begun: list[tuple[str, str]], more: list[tuple[str, str]]
):
    before, after = history(*begun), history(*begun, *more)
    kept = len(after.earlier) - len(before.earlier)
    assert after.earlier[kept:] == before.earlier


@pytest.mark.parametrize(
    ("session", "header"), [("abc", b"abc"), ("a b", b"a b"), (" a", None), ("ä", None), ("a\n", None), ("a\x7f", None)]
)
def test_an_id_that_no_header_can_carry_becomes_a_digest(session: str, header: bytes | None):
    made = header_safe(session)
    assert made == (header if header is not None else made)
    assert (header is None) == made.startswith(b"body-")
    assert made != header_safe(session + "x")


# the table


def turns(*texts: str, system: str = "s") -> History:
    """User and assistant in turn, beginning with the user."""
    roles = ("user", "assistant")
    return history(("system", system), *((roles[i % 2], text) for i, text in enumerate(texts)))


def test_a_conversation_is_found_where_its_last_turn_was_served():
    chains = Chains(10.0, 100)
    assert chains.look_up(turns("u1"), 0.0) == (Recognition.FIRST, ())
    chains.put(turns("u1"), "a", 0.0)
    chains.put(turns("u1", "a1", "u2"), "b", 1.0)
    assert chains.look_up(turns("u1", "a1", "u2", "a2", "u3"), 2.0) == (Recognition.FOUND, ("b",))
    assert chains.look_up(turns("u1", "other", "u2"), 2.0) == (Recognition.FOUND, ("a",))


def test_the_same_turn_again_is_where_it_was():
    chains = Chains(10.0, 100)
    chains.put(turns("u1"), "a", 0.0)
    chains.put(turns("u1", "a1", "u2"), "a", 0.0)
    assert chains.look_up(turns("u1", "a1", "u2"), 0.0) == (Recognition.FOUND, ("a",))


def test_what_several_conversations_have_in_common_is_ambiguous():
    chains = Chains(10.0, 100)
    for replica in ("a", "b", "a"):
        chains.put(turns("hello"), replica, 0.0)
    assert chains.look_up(turns("hello", "hi", "u2"), 0.0) == (Recognition.AMBIGUOUS, ("a", "b"))


def test_a_common_prompt_remembers_a_few_replicas():
    chains = Chains(10.0, 100)
    for i in range(MAX_REPLICAS + 3):
        chains.put(turns("hello"), f"r{i}", 0.0)
    assert len(chains.look_up(turns("hello", "hi", "u2"), 0.0)[1]) == MAX_REPLICAS


def test_a_conversation_is_forgotten_after_its_idle_time():
    chains = Chains(10.0, 100)
    chains.put(turns("u1"), "a", 0.0)
    assert chains.look_up(turns("u1", "a1", "u2"), 9.9)[0] is Recognition.FOUND
    assert chains.look_up(turns("u1", "a1", "u2"), 10.0)[0] is Recognition.UNKNOWN


def test_a_time_in_the_system_text_is_noticed():
    chains = Chains(10.0, 100)
    chains.put(turns("u1", system="it is 10:00"), "a", 0.0)
    assert chains.look_up(turns("u1", "a1", "u2", system="it is 10:01"), 0.0) == (Recognition.SYSTEM_CHANGES, ())


def test_a_client_that_cuts_old_turns_off_is_noticed():
    chains = Chains(10.0, 100)
    chains.put(turns("u1", "a1", LONG), "a", 0.0)
    cut = turns(LONG, "a2", "u3")
    assert chains.look_up(cut, 0.0) == (Recognition.TRIMMED, ())
    assert chains.look_up(turns("another " + LONG, "a2", "u3"), 0.0) == (Recognition.UNKNOWN, ())


def test_short_messages_are_no_sign_of_a_cut():
    chains = Chains(10.0, 100)
    chains.put(turns("u1", "a1", "go on"), "a", 0.0)
    assert chains.look_up(turns("go on", "a2", "u3"), 0.0)[0] is Recognition.UNKNOWN


def test_the_table_is_bounded():
    chains = Chains(1000.0, 10)
    for i in range(100):
        chains.put(turns(f"u{i}"), "a", float(i))
        assert len(chains) <= 12


def test_what_one_picker_served_is_known_to_another_and_not_told_on():
    one, other = Chains(10.0, 100), Chains(10.0, 100)
    told, heard = one.news(), other.news()
    one.put(turns("u1"), "a", 0.0)
    one.put(turns("u1"), "b", 0.0)
    said = told.take(10)
    assert said == [Served(turns("u1").prompt, "b")], "each prompt once, as it is now"
    other.absorb(said, 5.0)
    assert other.look_up(turns("u1", "a1", "u2"), 14.9) == (Recognition.FOUND, ("b",))
    assert (len(told), len(heard)) == (0, 0)


def test_of_a_prompt_that_two_pickers_served_both_replicas_are_known():
    chains = Chains(10.0, 100)
    chains.put(turns("u1"), "a", 0.0)
    for _ in range(2):
        chains.absorb([Served(turns("u1").prompt, "b")], 0.0)
    assert chains.look_up(turns("u1", "a1", "u2"), 0.0) == (Recognition.AMBIGUOUS, ("b", "a"))


def test_what_was_not_heard_is_told_again_but_for_what_is_newer():
    news = News()
    for prompt in (b"1", b"2"):
        news.note(prompt, "a")
    unheard = news.take(2)
    news.note(b"1", "b")
    news.again(unheard)
    assert news.take(3) == [Served(b"1", "b"), Served(b"2", "a")]


def test_news_are_bounded():
    news = News()
    for i in range(MAX_NEWS + 1):
        news.note(b"%d" % i, "a")
    news.note(b"0", "b")
    assert len(news) == MAX_NEWS
    assert news.take(1) == [Served(b"0", "b")]
