"""What Envoy tells a picker about one request, and what the picker answers. No protobuf, no sockets.

Source: Envoy's api/envoy/service/ext_proc/v3/external_processor.proto. Every event gets exactly one answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

Headers = Mapping[str, bytes]
SetHeaders = tuple[tuple[str, bytes], ...]


class RequestHeadersReceived(msgspec.Struct, frozen=True):
    """The request's headers, lower-case, the first of equal names, as Envoy's %REQ()% has it. `model`: what Envoy
    found in the body, if anything. `cluster`: where the route leads, None where it answers by itself. `has_body`: more
    than headers is to come. `subset`: the only addresses that a hop before Envoy's filter allows."""

    headers: Headers
    model: str | None
    cluster: str | None = None
    has_body: bool = True
    subset: frozenset[str] | None = None


class RequestBodyReceived(msgspec.Struct, frozen=True):
    """The whole body: asked for by `HeadersAnswer.want_body`."""

    body: bytes


@dataclass(frozen=True, slots=True)
class ResponseTrailersReceived:
    """The answer has trailers. Most have none; then the stream just ends."""


@dataclass(frozen=True, slots=True)
class ResponseHeadersReceived:
    """The answer's headers, on the stream of its own that x-homing-learn opens. `learn` is that header's value;
    `cluster` and `replica` are who serves."""

    headers: Headers
    learn: str
    cluster: str
    replica: str


@dataclass(frozen=True, slots=True)
class ResponseBodyReceived:
    """The next piece of the answer."""

    body: bytes


@dataclass(frozen=True, slots=True)
class OtherReceived:
    """Something this version does not ask for. It is answered in kind, so that Envoy goes on."""

    kind: str


Event = (
    RequestHeadersReceived
    | RequestBodyReceived
    | ResponseTrailersReceived
    | ResponseHeadersReceived
    | ResponseBodyReceived
    | OtherReceived
)


class HeadersAnswer(msgspec.Struct, frozen=True):
    """Headers to overwrite on the request. `want_body` has Envoy buffer the body and send it too; `reroute` has it
    choose the route anew."""

    set_headers: SetHeaders = ()
    want_body: bool = False
    reroute: bool = False


class BodyAnswer(msgspec.Struct, frozen=True):
    """`body` replaces the request's, content-length included; None leaves it byte for byte. Headers to overwrite, for
    a decision that had to see the body."""

    body: bytes | None = None
    set_headers: SetHeaders = ()


@dataclass(frozen=True, slots=True)
class TrailersAnswer:
    pass


@dataclass(frozen=True, slots=True)
class OtherAnswer:
    """Go on, unchanged. `kind` as in the event."""

    kind: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Ends the request here. Envoy puts the message into OpenAI's error shape. `retry_after_s`: when to come again."""

    status: int
    message: str
    retry_after_s: int | None = None


Answer = HeadersAnswer | BodyAnswer | TrailersAnswer | OtherAnswer | Reject


@dataclass(frozen=True, slots=True)
class Later:
    """The answer needs something that is read first: the transport awaits `wait` (bounded, never raises), then asks
    `resume`. A stream that ends before gets no answer; `wait` is cancelled then."""

    wait: Awaitable[object]
    resume: Callable[[], Answer]
