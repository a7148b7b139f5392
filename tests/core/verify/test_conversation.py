"""Conversations: what is made, salted and reused."""

from hypothesis import given
from hypothesis import strategies as st

from homing.core.verify.conversation import Conversation, Message, common, flat, reusable, shared, size
from homing.core.verify.generated import generated
from homing.core.verify.words import WORDS, salt, words

PROMPTS = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant", "system"]), st.text(max_size=20)), min_size=1, max_size=5
).map(tuple)


def test_the_same_seed_makes_the_same_conversations_and_another_makes_others():
    assert generated(7, 3, 4) == generated(7, 3, 4)
    assert generated(7, 3, 4)[:2] == generated(7, 2, 4)
    assert generated(7, 1, 4) != generated(8, 1, 4)


def test_each_generated_turn_goes_on_from_the_one_before():
    for conversation in generated(1, 2, 5):
        assert [len(prompt) for prompt in conversation.turns] == [2, 4, 6, 8, 10]
        assert all(after[: len(before)] == before for before, after in conversation.steps())


def test_generated_conversations_are_of_one_length_and_begin_apart():
    one, other = generated(1, 2, 4)
    assert one.characters == other.characters
    assert shared(one.turns[0], other.turns[0]) < 150  # the system text, and what every question begins with


def test_salts_of_runs_differ_and_are_as_long():
    first, second, again = salt(1, "round robin"), salt(1, "affinity"), salt(2, "affinity")
    assert len({first, second, again}) == 3
    assert {len(first), len(second), len(again)} == {8 * 4 - 1}
    assert set(first.split()) <= set(WORDS)


def test_words_depend_on_their_place_and_on_nothing_else():
    assert words(3, 5, "a", 1) == words(9, 5, "a", 1)[: 3 * 4 - 1]
    assert words(9, 5, "a", 1) != words(9, 5, "a", 2)


@given(PROMPTS, PROMPTS)
def test_what_is_shared_is_what_both_begin_with(one, other):
    length = shared(one, other)
    assert flat(one)[:length] == flat(other)[:length]
    assert length == min(len(flat(one)), len(flat(other))) or flat(one)[length] != flat(other)[length]
    assert size(one) == len(flat(one))


@given(st.text(alphabet="ab"), st.text(alphabet="ab"))
def test_common_is_symmetric_and_exact(one, other):
    expected = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert common(one, other) == common(other, one) == expected


@given(st.lists(PROMPTS, min_size=1, max_size=4))
def test_a_salt_stands_in_front_of_every_turn_and_changes_nothing_else(prompts):
    salted = Conversation(tuple(prompts)).salted("salt").turns
    for before, after in zip(prompts, salted, strict=True):
        assert after[0] == Message(before[0].role, "salt\n" + before[0].content)
        assert after[1:] == before[1:]


def test_two_salts_leave_nothing_to_share_but_the_role():
    (conversation,) = generated(1, 1, 4)
    one, other = conversation.salted(salt(3, "round robin")), conversation.salted(salt(3, "affinity"))
    assert all(shared(a, b) < len("system\n") + 8 for a, b in zip(one.turns, other.turns, strict=True))
    assert one.characters == other.characters


def test_reusable_is_the_share_that_the_turn_before_has_sent():
    first = (Message("user", "x" * 94),)  # 100 characters with role and ends
    second = (*first, Message("user", "y" * 94))
    assert reusable((Conversation((first, second)),)) == 100 / 300
    assert reusable(()) == 0.0
