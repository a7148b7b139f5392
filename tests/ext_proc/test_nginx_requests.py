"""NGINX's requests end by their line, by the next question of their connection, or by time."""

from __future__ import annotations

from homing.ext_proc.events import Answer, Event
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.nginx_requests import LATE_S, OPEN_S, OpenRequests


class Closing(Exchange):
    """Says when it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def receive(self, event: Event) -> Answer:
        raise AssertionError(event)

    def close(self) -> None:
        assert not self.closed, "once"
        self.closed = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> OpenRequests:
    return OpenRequests(Closing, clock)


def closed(request: object) -> bool:
    exchange = request.exchange  # type: ignore[attr-defined]
    assert isinstance(exchange, Closing)
    return exchange.closed


def test_a_request_is_the_same_until_its_line_comes() -> None:
    requests = opened(Clock())
    first = requests.get("a")
    assert requests.get("a") is first
    assert (requests.close("a"), closed(first), len(requests)) == (True, True, 0)
    assert (requests.close("a"), requests.forgotten) == (False, 0)


def test_the_next_question_of_a_connection_ends_the_one_before_a_little_later() -> None:
    clock = Clock()
    requests = opened(clock)
    first, other = requests.get("a", "c1"), requests.get("b", "c2")
    requests.get("c", "c1")
    assert not closed(first), "its line may be on its way"
    clock.now = LATE_S
    requests.get("d", "c3")
    assert (closed(first), closed(other), requests.forgotten) == (True, False, 1)


def test_a_line_that_is_late_by_less_is_heard() -> None:
    clock = Clock()
    requests = opened(clock)
    requests.get("a", "c1")
    requests.get("b", "c1")
    assert requests.close("a")
    clock.now = LATE_S
    requests.get("c", "c3")
    assert (requests.forgotten, len(requests)) == (0, 2)


def test_requests_without_a_connection_of_their_own_end_by_time() -> None:
    clock = Clock()
    requests = opened(clock)
    first = requests.get("a")
    requests.get("b")
    clock.now = OPEN_S
    requests.get("c")
    assert (closed(first), requests.forgotten, len(requests)) == (True, 2, 1)


def test_a_request_that_ended_before_it_was_asked_about_holds_nothing() -> None:
    requests = opened(Clock())
    assert not requests.close("a")
    requests.get("a")
    assert (requests.over("a"), len(requests)) == (True, 0)
