"""One request as a state machine: events in, answers out. Synchronous, no I/O.

              RequestHeaders            RequestBody        ResponseTrailers
    FRESH     -> PLACED | WANTS_BODY    violation          violation
    WANTS_BODY  violation               -> PLACED          -> PLACED (the client gave up its body)
    PLACED      violation               -> PLACED (as is)  -> PLACED

The in-flight slot taken by a placement is given back exactly once, by `close`, whatever happened before: Envoy keeps
the stream open until the client's response has ended (`response_trailer_mode: SEND`).
A violation never fails the request: it is answered in kind, unchanged, and counted.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
    Event,
    HeadersAnswer,
    OtherAnswer,
    OtherReceived,
    Reject,
    RequestBodyReceived,
    RequestHeadersReceived,
    ResponseTrailersReceived,
    SetHeaders,
    TrailersAnswer,
)


class Stage(Enum):
    FRESH = auto()
    WANTS_BODY = auto()
    PLACED = auto()
    CLOSED = auto()


class Routed(Protocol):
    """What the decision about one request amounts to for the exchange."""

    @property
    def set_headers(self) -> SetHeaders: ...

    @property
    def want_body(self) -> bool: ...

    def rewrite(self, body: bytes) -> BodyAnswer | Reject:
        """The body's turn, where it was wanted."""

    def release(self) -> None:
        """The request has ended. Called exactly once."""


class Router(Protocol):
    """Decides about requests; the exchange only keeps the protocol."""

    def route(self, request: RequestHeadersReceived) -> Routed: ...

    def violated(self, stage: Stage, event: Event) -> None:
        """Envoy sent what the stage does not foresee."""


class Exchange:
    """One stream. `receive` answers each event; `close` when the stream is over, however it ended."""

    __slots__ = ("_routed", "_router", "stage")

    def __init__(self, router: Router) -> None:
        self._router = router
        self._routed: Routed | None = None
        self.stage = Stage.FRESH

    def receive(self, event: Event) -> Answer:
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
        self._router.violated(stage, event)
        return _unchanged(event)

    def close(self) -> None:
        """Gives the slot back. Further calls do nothing."""
        routed, self._routed = self._routed, None
        self.stage = Stage.CLOSED
        if routed is not None:
            routed.release()

    def _headers(self, event: RequestHeadersReceived) -> Answer:
        routed = self._routed = self._router.route(event)
        want_body = routed.want_body and event.has_body
        self.stage = Stage.WANTS_BODY if want_body else Stage.PLACED
        return HeadersAnswer(routed.set_headers, want_body)

    def _body(self, event: RequestBodyReceived) -> Answer:
        self.stage = Stage.PLACED
        assert self._routed is not None
        return self._routed.rewrite(event.body)


def _unchanged(event: Event) -> Answer:
    match event:
        case RequestHeadersReceived():
            return HeadersAnswer()
        case RequestBodyReceived():
            return BodyAnswer()
        case ResponseTrailersReceived():
            return TrailersAnswer()
        case OtherReceived(kind):
            return OtherAnswer(kind)
