"""What pickers tell each other of the prompts that they sent."""

import msgspec
import pytest

from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.core.prefix.sent import MAX_NEWS, MAX_TOLD, SentNews, SentPrompt


def prompt(*marks: int) -> Prompt:
    return Prompt(marks, tuple(100 * (i + 1) for i in range(len(marks))))


def held(index: Index, *marks: int) -> dict[str, int]:
    return dict(index.held("pool", prompt(*marks), 1.0))


def test_what_one_sent_another_knows():
    one, other = Index(), Index()
    news = one.news()
    one.placed("pool", "a", prompt(1, 2, 3), 0.0)
    other.absorb(news.take(10), 0.5)
    assert held(other, 1, 2, 9) == {"a": 200}
    assert len(news) == 0


def test_what_is_heard_is_not_told_on():
    index = Index()
    news = index.news()
    index.absorb([SentPrompt.of("pool", "a", prompt(1))], 0.0)
    assert len(news) == 0


def test_a_prompt_that_begins_as_one_before_at_that_replica_is_told_once():
    index = Index()
    news = index.news()
    long = range(1, MAX_TOLD + 3)
    index.placed("pool", "a", prompt(*long), 0.0)
    index.placed("pool", "a", prompt(*long, 99), 1.0)
    assert [sent.replica for sent in news.take(10)] == ["a"]
    index.placed("pool", "b", prompt(*long), 2.0)
    index.placed("pool", "a", prompt(1, 98), 3.0)
    assert [(sent.replica, sent.marks[:2], len(sent.marks)) for sent in news.take(10)] == [
        ("b", (1, 2), MAX_TOLD),
        ("a", (1, 98), 2),
    ]


def test_each_listener_hears_all_and_nothing_is_noted_without_one():
    index = Index()
    index.placed("pool", "a", prompt(1), 0.0)
    first, second = index.news(), index.news()
    index.placed("pool", "a", prompt(2), 0.0)
    assert [len(first), len(second)] == [1, 1]
    assert first.take(5)[0].marks == second.take(5)[0].marks == (2,)


def test_what_was_not_heard_comes_first_again_and_the_oldest_are_dropped_when_there_are_too_many():
    news = SentNews()
    for i in range(MAX_NEWS + 5):
        news.note(SentPrompt.of("pool", "a", prompt(i)))
    assert len(news) == MAX_NEWS
    taken = news.take(3)
    assert [sent.marks for sent in taken] == [(5,), (6,), (7,)]
    news.note(SentPrompt.of("pool", "a", prompt(9_999)))
    news.again(taken)
    assert [sent.marks for sent in news.take(3)] == [(6,), (7,), (8,)]


@pytest.mark.parametrize(
    "said",
    [
        ["pool", "a", [1, 2], [100]],
        ["pool", "a", [1, 2], [200, 100]],
    ],
)
def test_what_no_prompt_can_be_changes_nothing(said: list[object]):
    index = Index()
    index.absorb([msgspec.convert(said, SentPrompt)], 0.0)
    assert held(index, 1, 2) == {}


@pytest.mark.parametrize(
    "said",
    [
        ["pool", "a", [-1], [100]],
        ["pool", "a", [1], [0]],
        ["pool", "a", [1], [10**10]],
        ["pool", "x" * 129, [1], [100]],
        ["pool", "a", list(range(MAX_TOLD + 1)), list(range(1, MAX_TOLD + 2))],
    ],
)
def test_what_is_out_of_bounds_is_not_read(said: list[object]):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(said, SentPrompt)
