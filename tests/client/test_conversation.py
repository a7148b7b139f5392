"""The id of a conversation: which answers name it, and which come too late."""

from __future__ import annotations

import logging
import threading

import pytest

from homing_client import Conversation


@pytest.mark.parametrize("given", [None, "", "NEW_SESSION", "new_session"])
def test_a_new_conversation_has_no_id(given: str | None) -> None:
    assert Conversation(given).id is None
    assert Conversation(given).begin_turn().id is None


def test_a_stored_id_continues_its_conversation() -> None:
    stored = Conversation()
    stored.begin_turn().answered("s-1")
    assert Conversation(id=stored.id).begin_turn().id == "s-1"


@pytest.mark.parametrize("given", ["a\r\nx-evil: 1", "a\nb", "sessión", " a", "a ", "a\tb", "a\0"])
def test_an_id_that_no_header_can_carry_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        Conversation(given)


@pytest.mark.parametrize("given", [None, "", "sessión", "a\r\nb"])
def test_an_answer_without_an_id_that_could_be_sent_names_nothing(given: str | None) -> None:
    new, begun = Conversation(), Conversation("s-1")
    new.begin_turn().answered(given)
    begun.begin_turn().answered(given)
    assert (new.id, begun.id) == (None, "s-1")


def test_of_two_first_turns_the_first_answer_names_the_session(caplog: pytest.LogCaptureFixture) -> None:
    conversation = Conversation()
    one, two = conversation.begin_turn(), conversation.begin_turn()
    two.answered("two")
    assert caplog.records == []
    one.answered("one")
    assert conversation.id == "two"
    assert [(r.name, r.levelno) for r in caplog.records] == [("homing_client", logging.WARNING)]
    assert "one" not in caplog.text.replace("once", "")


def test_a_renewed_id_is_followed_and_older_answers_do_not_bring_the_old_back(caplog: pytest.LogCaptureFixture) -> None:
    conversation = Conversation("old")
    early, late = conversation.begin_turn(), conversation.begin_turn()
    early.answered("renewed")
    assert conversation.id == "renewed"
    late.answered("old")
    assert conversation.id == "renewed"
    assert caplog.records == []


def test_an_answer_that_confirms_the_id_leaves_the_other_turns_their_say() -> None:
    conversation = Conversation("s-1")
    one, two = conversation.begin_turn(), conversation.begin_turn()
    one.answered("s-1")
    two.answered("renewed")
    assert conversation.id == "renewed"


def test_an_answer_after_the_close_does_not_bring_the_session_back(caplog: pytest.LogCaptureFixture) -> None:
    conversation = Conversation()
    first, slow = conversation.begin_turn(), conversation.begin_turn()
    first.answered("s-1")
    during = conversation.begin_turn()
    conversation.begin_turn().closed()
    slow.answered("s-2")  # it began where there was no id, and there is none again
    during.answered("s-1")
    assert conversation.id is None
    assert caplog.records == []
    conversation.begin_turn().answered("s-3")
    assert conversation.id == "s-3"


def test_a_close_of_another_session_than_the_present_one_closes_nothing() -> None:
    conversation = Conversation("old")
    closing = conversation.begin_turn()
    conversation.begin_turn().answered("renewed")
    closing.closed()
    assert conversation.id == "renewed"


def test_first_answers_in_many_threads_name_one_session() -> None:
    conversation, at_once = Conversation(), 16
    turns = [conversation.begin_turn() for _ in range(at_once)]
    meeting, seen = threading.Barrier(at_once), set()

    def answer(number: int) -> None:
        meeting.wait(10)
        turns[number].answered(f"s-{number}")
        seen.add(conversation.id)

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {conversation.id}


def test_what_is_printed_does_not_tell_the_id() -> None:
    assert repr(Conversation()) == "<Conversation new>"
    assert repr(Conversation("secret-id")) == "<Conversation begun>"
    assert "secret-id" not in repr(Conversation("secret-id").begin_turn())
