"""One request as a state machine: events in, answers out. Synchronous, no I/O.

              RequestHeaders            RequestBody        ResponseTrailers    ResponseHeaders      ResponseBody
    FRESH     -> PLACED | WANTS_BODY    violation          violation           -> LEARNING | OVER   violation
    WANTS_BODY  violation               -> PLACED          -> PLACED (*)       violation            violation
    PLACED      violation               -> PLACED (as is)  -> PLACED           violation            violation
    READING     violation               violation          violation           violation            violation
    LEARNING    violation               violation          violation           violation            -> LEARNING | OVER

The first two may go by way of READING: the answer is a Later, and its `resume` makes the step that was due, once. A
stream that was closed while it read is not placed any more.
(*) The client gave up its body. A stream is about one request, or about what its answer teaches: OVER then, which asks
the transport to end the stream (OK). Envoy lets the rest of the answer pass untouched.

The in-flight slot taken by a placement is given back exactly once, by `close`, whatever happened before: Envoy keeps
the stream open until the client's response has ended (`response_trailer_mode: SEND`).
A violation never fails the request: it is answered in kind, unchanged, and counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

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

T_co = TypeVar("T_co", covariant=True)


class Stage(Enum):
    FRESH = auto()
    READING = auto()
    WANTS_BODY = auto()
    PLACED = auto()
    LEARNING = auto()
    OVER = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """What decides has to read something first. `wait` is bounded and never raises; then `resume`, once."""

    wait: Awaitable[object]
    resume: Callable[[], T_co]


class Routed(Protocol):
    """What the decision about one request amounts to for the exchange."""

    @property
    def set_headers(self) -> SetHeaders: ...

    @property
    def want_body(self) -> bool: ...

    @property
    def reroute(self) -> bool: ...

    def rewrite(self, body: bytes) -> BodyAnswer | Reject | Reading[BodyAnswer | Reject]:
        """The body's turn, where it was wanted."""

    def release(self) -> None:
        """The request has ended. Called exactly once."""


class Learner(Protocol):
    """Waits for what an answer tells."""

    def hear(self, piece: bytes) -> bool:
        """Whether it has heard enough."""


class Router(Protocol):
    """Decides about requests; the exchange only keeps the protocol."""

    def route(self, request: RequestHeadersReceived) -> Routed | Reject | Reading[Routed | Reject]:
        """Where it goes; a Reject where it is refused at once."""

    def learn(self, answer: ResponseHeadersReceived) -> Learner | None:
        """Who is to hear the body; None where the headers say all there is."""

    def violated(self, stage: Stage, event: Event) -> None:
        """Envoy sent what the stage does not foresee."""


class Exchange:
    """One stream. `receive` answers each event; `close` when the stream is over, however it ended."""

    __slots__ = ("_due", "_learner", "_routed", "_router", "stage")

    def __init__(self, router: Router) -> None:
        self._router = router
        self._routed: Routed | None = None
        self._due: Callable[[], Answer] | None = None
        self._learner: Learner | None = None
        self.stage = Stage.FRESH

    @property
    def over(self) -> bool:
        """Nothing more is wanted: the stream is to be ended."""
        return self.stage is Stage.OVER

    def receive(self, event: Event) -> Answer | Later:
        stage = self.stage
        if type(event) is RequestHeadersReceived and stage is Stage.FRESH:
            return self._headers(event)
        if type(event) is RequestBodyReceived and stage is Stage.WANTS_BODY:
            return self._body(event)
        if type(event) is RequestBodyReceived and stage is Stage.PLACED:
            return BodyAnswer()
        if type(event) is ResponseTrailersReceived and stage in (Stage.PLACED, Stage.WANTS_BODY):
            self.stage = Stage.PLACED
            return TrailersAnswer()
        if type(event) is ResponseHeadersReceived and stage is Stage.FRESH:
            self._learner = self._router.learn(event)
            self.stage = Stage.OVER if self._learner is None else Stage.LEARNING
            return _unchanged(event)
        if type(event) is ResponseBodyReceived and stage is Stage.LEARNING:
            assert self._learner is not None
            self.stage = Stage.OVER if self._learner.hear(event.body) else Stage.LEARNING
            return _unchanged(event)
        self._router.violated(stage, event)
        return _unchanged(event)

    def close(self) -> None:
        """Gives the slot back. Further calls do nothing."""
        routed, self._routed = self._routed, None
        self.stage = Stage.CLOSED
        self._due = None
        if routed is not None:
            routed.release()

    def _headers(self, event: RequestHeadersReceived) -> Answer | Later:
        routed = self._router.route(event)
        if isinstance(routed, Reading):
            resume = routed.resume
            return self._later(routed.wait, event, lambda: self._routed_to(resume(), event))
        return self._routed_to(routed, event)

    def _routed_to(self, routed: Routed | Reject, event: RequestHeadersReceived) -> Answer:
        if isinstance(routed, Reject):
            self.stage = Stage.PLACED
            return routed
        self._routed = routed
        want_body = routed.want_body and event.has_body
        self.stage = Stage.WANTS_BODY if want_body else Stage.PLACED
        return HeadersAnswer(routed.set_headers, want_body, routed.reroute)

    def _body(self, event: RequestBodyReceived) -> Answer | Later:
        self.stage = Stage.PLACED
        assert self._routed is not None
        answer = self._routed.rewrite(event.body)
        if isinstance(answer, Reading):
            resume = answer.resume
            return self._later(answer.wait, event, lambda: self._rewritten(resume()))
        return answer

    def _rewritten(self, answer: BodyAnswer | Reject) -> Answer:
        self.stage = Stage.PLACED
        return answer

    def _later(self, wait: Awaitable[object], event: Event, step: Callable[[], Answer]) -> Later:
        def resume() -> Answer:
            if self._due is not step:
                return _unchanged(event)
            self._due = None
            return step()

        self.stage = Stage.READING
        self._due = step
        return Later(wait, resume)


def _unchanged(event: Event) -> Answer:
    match event:
        case RequestHeadersReceived():
            return HeadersAnswer()
        case RequestBodyReceived():
            return BodyAnswer()
        case ResponseTrailersReceived():
            return TrailersAnswer()
        case ResponseHeadersReceived():
            return OtherAnswer("response_headers")
        case ResponseBodyReceived():
            return OtherAnswer("response_body")
        case OtherReceived(kind):
            return OtherAnswer(kind)
