"""Every event at every stage: one answer in kind, one release, nothing raised."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
    Event,
    HeadersAnswer,
    Later,
    OtherAnswer,
    OtherReceived,
    Reject,
    RequestBodyReceived,
    RequestHeadersReceived,
    ResponseBodyReceived,
    ResponseHeadersReceived,
    ResponseTrailersReceived,
    SetHeaders,
    TrailersAnswer,
)
from homing.ext_proc.exchange import Exchange, Reading, Stage

SET: SetHeaders = (("x-set", b"1"),)
HEADERS = RequestHeadersReceived({}, "model")
NO_BODY = RequestHeadersReceived({}, "model", has_body=False)
BODY = RequestBodyReceived(b"body")
TRAILERS = ResponseTrailersReceived()
OTHER = OtherReceived("request_trailers")
ANSWER_HEADERS = ResponseHeadersReceived({}, "response:", "p", "gpu-0")
ANSWER_BODY = ResponseBodyReceived(b"piece")
LEARN_HEADERS, LEARN_BODY = OtherAnswer("response_headers"), OtherAnswer("response_body")


@dataclass
class FakeRouted:
    want_body: bool = False
    rewritten: BodyAnswer | Reject = field(default_factory=lambda: BodyAnswer(b"rewritten"))
    set_headers: SetHeaders = SET
    reroute: bool = False
    bodies: list[bytes] = field(default_factory=list)
    released: int = 0

    def rewrite(self, body: bytes) -> BodyAnswer | Reject:
        self.bodies.append(body)
        return self.rewritten

    def release(self) -> None:
        self.released += 1


@dataclass
class FakeLearner:
    """Has heard enough after `pieces`."""

    pieces: int = 1

    def hear(self, piece: bytes) -> bool:
        self.pieces -= 1
        return self.pieces <= 0


@dataclass
class FakeRouter:
    routed: FakeRouted
    requests: list[RequestHeadersReceived] = field(default_factory=list)
    violations: list[tuple[Stage, Event]] = field(default_factory=list)
    learner: FakeLearner | None = None

    def learn(self, answer: ResponseHeadersReceived) -> FakeLearner | None:
        return self.learner

    def route(self, request: RequestHeadersReceived) -> FakeRouted:
        self.requests.append(request)
        return self.routed

    def violated(self, stage: Stage, event: Event) -> None:
        self.violations.append((stage, event))


def opened(*, want_body: bool = False) -> tuple[Exchange, FakeRouter]:
    router = FakeRouter(FakeRouted(want_body))
    return Exchange(router), router


# stage, event, answer, next stage, whether it is a violation: the table of exchange.py, all of it
TABLE = [
    (Stage.FRESH, HEADERS, HeadersAnswer(SET), Stage.PLACED, False),
    (Stage.FRESH, NO_BODY, HeadersAnswer(SET), Stage.PLACED, False),
    (Stage.FRESH, BODY, BodyAnswer(), Stage.FRESH, True),
    (Stage.FRESH, TRAILERS, TrailersAnswer(), Stage.FRESH, True),
    (Stage.FRESH, OTHER, OtherAnswer("request_trailers"), Stage.FRESH, True),
    (Stage.WANTS_BODY, HEADERS, HeadersAnswer(), Stage.WANTS_BODY, True),
    (Stage.WANTS_BODY, BODY, BodyAnswer(b"rewritten"), Stage.PLACED, False),
    (Stage.WANTS_BODY, TRAILERS, TrailersAnswer(), Stage.PLACED, False),
    (Stage.WANTS_BODY, OTHER, OtherAnswer("request_trailers"), Stage.WANTS_BODY, True),
    (Stage.PLACED, HEADERS, HeadersAnswer(), Stage.PLACED, True),
    (Stage.PLACED, BODY, BodyAnswer(), Stage.PLACED, False),
    (Stage.PLACED, TRAILERS, TrailersAnswer(), Stage.PLACED, False),
    (Stage.PLACED, OTHER, OtherAnswer("request_trailers"), Stage.PLACED, True),
    (Stage.CLOSED, HEADERS, HeadersAnswer(), Stage.CLOSED, True),
    (Stage.CLOSED, BODY, BodyAnswer(), Stage.CLOSED, True),
    (Stage.CLOSED, TRAILERS, TrailersAnswer(), Stage.CLOSED, True),
    (Stage.CLOSED, OTHER, OtherAnswer("request_trailers"), Stage.CLOSED, True),
]


@pytest.mark.parametrize(("stage", "event", "answer", "then", "violation"), TABLE)
def test_transition(stage: Stage, event: Event, answer: Answer, then: Stage, violation: bool):
    exchange, router = opened(want_body=stage is Stage.WANTS_BODY)
    if stage is not Stage.FRESH:
        exchange.receive(HEADERS)
    if stage is Stage.CLOSED:
        exchange.close()
    assert exchange.stage is stage
    assert exchange.receive(event) == answer
    assert exchange.stage is then
    assert router.violations == ([(stage, event)] if violation else [])


def test_the_body_is_asked_for_only_if_there_is_one():
    for event, asked in ((HEADERS, True), (NO_BODY, False)):
        exchange, _ = opened(want_body=True)
        assert exchange.receive(event) == HeadersAnswer(SET, want_body=asked)


def test_the_wanted_body_is_rewritten_once():
    exchange, router = opened(want_body=True)
    answers = [exchange.receive(event) for event in (HEADERS, BODY, BODY)]
    assert answers == [HeadersAnswer(SET, want_body=True), BodyAnswer(b"rewritten"), BodyAnswer()]
    assert router.routed.bodies == [b"body"]


def test_a_refused_body_still_holds_its_slot_until_the_stream_ends():
    exchange, router = opened(want_body=True)
    router.routed.rewritten = Reject(400, "no")
    exchange.receive(HEADERS)
    assert exchange.receive(BODY) == Reject(400, "no")
    assert router.routed.released == 0
    exchange.close()
    assert router.routed.released == 1


def test_a_stream_that_ends_before_it_begins_releases_nothing():
    exchange, router = opened()
    exchange.close()
    exchange.close()
    assert (router.routed.released, exchange.stage) == (0, Stage.CLOSED)


class Wait:
    """Stands for what is awaited: the exchange hands it on and does nothing with it."""

    def __await__(self):
        raise NotImplementedError


@dataclass
class ReadingRouted(FakeRouted):
    def rewrite(self, body: bytes) -> Reading[BodyAnswer | Reject]:
        self.bodies.append(body)
        return Reading(WAIT, lambda: self.rewritten)


@dataclass
class ReadingRouter(FakeRouter):
    """Takes the slot when it resumes, as the picker does."""

    routed_at: int = 0

    def route(self, request: RequestHeadersReceived) -> Reading[FakeRouted]:
        self.requests.append(request)
        return Reading(WAIT, self._resume)

    def _resume(self) -> FakeRouted:
        self.routed_at += 1
        return self.routed


WAIT: Awaitable[object] = Wait()


def test_what_is_read_first_is_handed_to_the_transport_and_then_answered():
    router = ReadingRouter(ReadingRouted(want_body=True))
    exchange = Exchange(router)
    for event, answer, then in (
        (HEADERS, HeadersAnswer(SET, want_body=True), Stage.WANTS_BODY),
        (BODY, BodyAnswer(b"rewritten"), Stage.PLACED),
    ):
        later = exchange.receive(event)
        assert isinstance(later, Later)
        assert (later.wait, exchange.stage) == (WAIT, Stage.READING)
        assert later.resume() == answer
        assert exchange.stage is then


def test_a_stream_that_is_reset_while_it_reads_takes_no_slot():
    router = ReadingRouter(FakeRouted())
    exchange = Exchange(router)
    later = exchange.receive(HEADERS)
    assert isinstance(later, Later)
    exchange.close()
    assert later.resume() == HeadersAnswer()
    assert (router.routed_at, router.routed.released, exchange.stage) == (0, 0, Stage.CLOSED)


def test_a_message_while_it_reads_is_a_violation_answered_in_kind():
    router = ReadingRouter(FakeRouted())
    exchange = Exchange(router)
    later = exchange.receive(HEADERS)
    assert isinstance(later, Later)
    assert [exchange.receive(e) for e in (HEADERS, BODY, TRAILERS)] == [HeadersAnswer(), BodyAnswer(), TrailersAnswer()]
    assert router.violations == [(Stage.READING, e) for e in (HEADERS, BODY, TRAILERS)]
    assert later.resume() == HeadersAnswer(SET)


@pytest.mark.parametrize(
    "stage", [s for s in Stage if s not in (Stage.FRESH, Stage.READING, Stage.LEARNING, Stage.OVER)]
)
def test_an_answer_on_the_stream_of_its_request_is_a_violation_answered_in_kind(stage: Stage):
    exchange, router = opened(want_body=stage is Stage.WANTS_BODY)
    exchange.receive(HEADERS)
    if stage is Stage.CLOSED:
        exchange.close()
    assert exchange.receive(ANSWER_HEADERS) == LEARN_HEADERS
    assert exchange.receive(ANSWER_BODY) == LEARN_BODY
    assert router.violations == [(stage, ANSWER_HEADERS), (stage, ANSWER_BODY)]
    assert not exchange.over


def test_a_stream_to_learn_from_is_over_when_enough_was_heard():
    router = FakeRouter(FakeRouted(), learner=FakeLearner(pieces=2))
    exchange = Exchange(router)
    for event, answer, then in (
        (ANSWER_HEADERS, LEARN_HEADERS, Stage.LEARNING),
        (ANSWER_BODY, LEARN_BODY, Stage.LEARNING),
        (ANSWER_BODY, LEARN_BODY, Stage.OVER),
    ):
        assert exchange.receive(event) == answer
        assert (exchange.stage, exchange.over) == (then, then is Stage.OVER)
    assert exchange.receive(ANSWER_BODY) == LEARN_BODY
    assert router.violations == [(Stage.OVER, ANSWER_BODY)]
    exchange.close()
    assert router.routed.released == 0


def test_where_the_headers_say_all_the_stream_is_over_at_once():
    exchange, router = opened()
    assert exchange.receive(ANSWER_HEADERS) == LEARN_HEADERS
    assert exchange.over
    assert router.violations == []


CLOSE = "close"
RESUME = "resume"
KINDS = ("request_trailers", "other")
events = st.one_of(
    st.builds(RequestHeadersReceived, st.just({}), st.none() | st.text(max_size=3), st.booleans()),
    st.builds(RequestBodyReceived, st.binary(max_size=3)),
    st.just(TRAILERS),
    st.just(ANSWER_HEADERS),
    st.just(ANSWER_BODY),
    st.builds(OtherReceived, st.sampled_from(KINDS)),
)
IN_KIND = {
    RequestHeadersReceived: HeadersAnswer,
    RequestBodyReceived: (BodyAnswer, Reject),
    ResponseTrailersReceived: TrailersAnswer,
    ResponseHeadersReceived: OtherAnswer,
    ResponseBodyReceived: OtherAnswer,
    OtherReceived: OtherAnswer,
}


@given(
    st.lists(events | st.sampled_from([CLOSE, RESUME]), max_size=14),
    st.booleans(),
    st.sampled_from([BodyAnswer(), BodyAnswer(b"new"), Reject(400, "no")]),
    st.sampled_from([FakeRouter, ReadingRouter]),
    st.sampled_from([FakeRouted, ReadingRouted]),
)
def test_any_order_of_events(
    steps: list[Event | str],
    want_body: bool,
    rewritten: BodyAnswer | Reject,
    router_type: type[FakeRouter],
    routed_type: type[FakeRouted],
):
    routed = routed_type(want_body, rewritten)
    router = router_type(routed)
    exchange = Exchange(router)
    closed = False
    pending: list[tuple[Later, Event]] = []

    def check(answer: Answer | Later, event: Event) -> None:
        if isinstance(answer, Later):
            pending.append((answer, event))
            return
        assert isinstance(answer, IN_KIND[type(event)])
        if isinstance(event, OtherReceived):
            assert answer == OtherAnswer(event.kind)

    for step in steps:
        if step == CLOSE:
            exchange.close()
            closed = True
        elif step == RESUME:
            for later, event in pending:  # also those that were resumed before
                check(later.resume(), event)
        else:
            check(exchange.receive(step), step)
        taken = router.routed_at if isinstance(router, ReadingRouter) else len(router.requests)
        assert routed.released == (closed and taken)
        assert taken <= len(router.requests) <= 1
        assert len(routed.bodies) <= 1
    exchange.close()
    for later, event in pending:
        check(later.resume(), event)
    taken = router.routed_at if isinstance(router, ReadingRouter) else len(router.requests)
    assert exchange.stage is Stage.CLOSED
    assert routed.released == taken <= 1
