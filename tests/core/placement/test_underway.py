"""Whose first tokens correct which queue, and who is told of those of others."""

from __future__ import annotations

from homing.core.placement.underway import MAX_NEWS, MOST, FirstToken, Underway

ONE, TWO = b"1" * 16, b"2" * 16


class Noted:
    """A queue that only notes."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, float, float]] = []

    def first_token(self, mark: float, at: float, now: float) -> None:
        self.heard.append((mark, at, now))


def test_a_first_token_of_ones_own_corrects_its_queue_once_and_is_told_nobody():
    underway, queue = Underway(), Noted()
    news = underway.news()
    underway.add(ONE, 100, queue, 700.0, 5.0)
    underway.first_token(ONE, 100, 2.0, 9.0)
    assert (queue.heard, len(news)) == ([(700.0, 7.0, 9.0)], 0)
    underway.first_token(ONE, 100, 2.0, 9.0)
    assert len(queue.heard) == 1


def test_that_of_a_siblings_request_is_told_to_all_and_corrects_the_queue_of_who_sent_it():
    hearing, sender, third, queue = Underway(), Underway(), Underway(), Noted()
    told = [hearing.news(), hearing.news()]
    sender.add(ONE, 100, queue, 700.0, 5.0)
    hearing.first_token(ONE, 100, 2.0, 9.0)
    firsts = [news.take() for news in told]
    assert firsts == [[FirstToken(ONE, 100, 2.0)]] * 2
    onward = sender.news(), third.news()
    sender.absorb(firsts[0], 9.1)
    third.absorb(firsts[1], 9.1)
    assert queue.heard == [(700.0, 7.0, 9.1)]
    assert [len(news) for news in (*told, *onward)] == [0, 0, 0, 0], "what was heard of is not told on"


def test_of_too_many_the_newest_are_told():
    underway = Underway()
    news = underway.news()
    for expected in range(MAX_NEWS + 3):
        underway.first_token(ONE, expected, 0.1, 0.0)
    assert [first.expected for first in news.take()] == list(range(3, MAX_NEWS + 3))


def test_of_too_many_requests_the_oldest_are_forgotten():
    underway, queue = Underway(), Noted()
    for expected in range(MOST + 1):
        underway.add(TWO, expected, queue, 1.0, 0.0)
    underway.first_token(TWO, 0, 1.0, 2.0)
    underway.first_token(TWO, 1, 1.0, 2.0)
    assert queue.heard == [(1.0, 1.0, 2.0)]
