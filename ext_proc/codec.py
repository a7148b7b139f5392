"""Envoy's protobuf <-> our events. Outside `control/resources` the only place that knows protobuf.

Sources: envoy/service/ext_proc/v3/external_processor.proto, opentelemetry/proto/collector/logs/v1/logs_service.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders, ProcessingRequest, ProcessingResponse
from google.protobuf.message import DecodeError, Message
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

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
    ResponseBodyReceived,
    ResponseHeadersReceived,
    ResponseTrailersReceived,
    SetHeaders,
    TrailersAnswer,
)
from homing.ext_proc.header_answer import WANTS_BODY, body_answer, header_answer

OVERWRITE = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
METADATA = "homing"
ATTRIBUTES = "envoy.filters.http.ext_proc"
CLUSTER = "xds.cluster_name"
SUBSET_HINT = "envoy.lb.subset_hint"
SUBSET = "x-gateway-destination-endpoint-subset"
REPLICA = "xds.upstream_host_metadata.filter_metadata['envoy.lb']['hash_key']"
LEARN = "request.headers['x-homing-learn']"


MAX_AROUND = 1_024
MAX_AROUND_BYTES = 1_024
_Around = tuple[str | None, str | None, frozenset[str] | None]


class MalformedMessageError(ValueError):
    """The bytes are not the message they should be. The stream is then of no use."""


def decode(data: bytes) -> Event:
    """One ProcessingRequest. Raises MalformedMessageError."""
    try:
        message = ProcessingRequest.FromString(data)
    except DecodeError as error:
        raise MalformedMessageError(str(error)) from error
    kind = message.WhichOneof("request")
    if kind == "request_headers":
        received = message.request_headers
        headers, cluster = _headers(received), _attribute(message, CLUSTER)
        body = not received.end_of_stream
        return RequestHeadersReceived(headers, _model(message), cluster or None, body, _subset(message))
    if kind == "request_body":
        return RequestBodyReceived(message.request_body.body)
    if kind == "response_trailers":
        return ResponseTrailersReceived()
    if kind == "response_headers":
        told = (_attribute(message, name) for name in (LEARN, CLUSTER, REPLICA))
        return ResponseHeadersReceived(_headers(message.response_headers), *told)
    if kind == "response_body":
        return ResponseBodyReceived(message.response_body.body)
    if kind is None:
        raise MalformedMessageError("a ProcessingRequest without a request")
    return OtherReceived(kind)


class Decoder:
    """`decode`, quicker where a message differs from an earlier one in the request's headers alone, as nearly every one
    does: what stands around them is read once, and known by its bytes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Around] = {}

    def __len__(self) -> int:
        """What is remembered."""
        return len(self._known)

    def decode(self, data: bytes) -> Event:
        """Raises MalformedMessageError."""
        begins = _headers_begin(data)
        ends = begins + (data[1] if begins == 2 else data[1] & 0x7F | data[2] << 7) if begins else 0
        if not begins or ends > len(data):
            return decode(data)
        known = self._known.get(data[ends:])
        if known is None:
            return self._learn(data, data[ends:])
        try:
            received = HttpHeaders.FromString(data[begins:ends])
        except DecodeError as error:
            raise MalformedMessageError(str(error)) from error
        model, cluster, subset = known
        return RequestHeadersReceived(_headers(received), model, cluster, not received.end_of_stream, subset)

    def _learn(self, data: bytes, around: bytes) -> Event:
        event = decode(data)
        # more of the headers, or another request, in what stands around them changes what they say
        if type(event) is not RequestHeadersReceived or len(around) > MAX_AROUND_BYTES or _asks(around):
            return event
        if len(self._known) >= MAX_AROUND:  # models that clients made up
            self._known.clear()
        self._known[around] = (event.model, event.cluster, event.subset)
        return event


def encode(answer: Answer) -> bytes:
    """One ProcessingResponse. SetInParent: without its oneof set it is "spurious" to Envoy and fails open."""
    if type(answer) is HeadersAnswer and not answer.reroute:
        if not answer.want_body:
            return header_answer(answer.set_headers)
        if not answer.set_headers:
            return WANTS_BODY
    if type(answer) is BodyAnswer and answer.body is None:
        return body_answer(answer.set_headers)
    response = ProcessingResponse()
    match answer:
        case HeadersAnswer(set_headers, want_body, reroute):
            response.request_headers.response.SetInParent()
            if reroute:
                response.request_headers.response.clear_route_cache = True
            _set_headers(response.request_headers.response, set_headers)
            if want_body:
                response.mode_override.request_body_mode = ProcessingMode.BUFFERED
                response.mode_override.response_header_mode = ProcessingMode.SKIP
                response.mode_override.response_trailer_mode = ProcessingMode.SEND
        case BodyAnswer(body, set_headers):
            response.request_body.response.SetInParent()
            _set_headers(response.request_body.response, set_headers)
            if body is not None:
                response.request_body.response.body_mutation.body = body
                _set_headers(response.request_body.response, (("content-length", b"%d" % len(body)),))
        case TrailersAnswer():
            response.response_trailers.SetInParent()
        case OtherAnswer(kind):
            getattr(response, kind).SetInParent()
        case Reject(status, message, retry_after_s):
            response.immediate_response.status.code = status
            if retry_after_s is not None:
                option = response.immediate_response.headers.set_headers.add()
                option.header.key, option.header.raw_value = "retry-after", b"%d" % retry_after_s
                option.append_action = OVERWRITE
            response.immediate_response.body = message.encode()
            response.immediate_response.details = "homing"
    encoded: bytes = response.SerializeToString()
    return encoded


def outcome_lines(data: bytes) -> list[str]:
    """One ExportLogsServiceRequest: a line for each request in it. Raises MalformedMessageError."""
    try:
        message = ExportLogsServiceRequest.FromString(data)
    except DecodeError as error:
        raise MalformedMessageError(str(error)) from error
    return [
        record.body.string_value
        for resource in message.resource_logs
        for scope in _second(resource)
        for record in _second(scope)
    ]


def decode_health(data: bytes) -> str:
    """One HealthCheckRequest: the name that is asked for. Raises MalformedMessageError."""
    try:
        return HealthCheckRequest.FromString(data).service
    except DecodeError as error:
        raise MalformedMessageError(str(error)) from error


def encode_health(serving: bool | None) -> bytes:
    """One HealthCheckResponse; None for a name that is not known."""
    name = "SERVICE_UNKNOWN" if serving is None else "SERVING" if serving else "NOT_SERVING"
    return HealthCheckResponse(status=HealthCheckResponse.ServingStatus.Value(name)).SerializeToString()


def _headers_begin(data: bytes) -> int:
    """Where the request's headers begin, if they are a message's first field and shorter than 16 KB; else 0."""
    if len(data) < 3 or data[0] != 0x12:  # request_headers 2
        return 0
    return 2 if data[1] < 0x80 else 3 if data[2] < 0x80 else 0


def _asks(around: bytes) -> bool:
    return ProcessingRequest.FromString(around).WhichOneof("request") is not None


def _model(message: ProcessingRequest) -> str | None:
    # what is not there comes into being by being looked at, and is empty: quicker than to ask before
    value = message.metadata_context.filter_metadata[METADATA].fields["model"]
    name: str = value.string_value
    return name if name or value.WhichOneof("kind") else None


def _subset(message: ProcessingRequest) -> frozenset[str] | None:
    """The endpoint picker protocol's hint (Gateway API Inference Extension, proposal 004): a list, or a text."""
    metadata = message.metadata_context.filter_metadata
    if SUBSET_HINT not in metadata or SUBSET not in metadata[SUBSET_HINT].fields:
        return None
    value = metadata[SUBSET_HINT].fields[SUBSET]
    listed = [item.string_value for item in value.list_value.values] or value.string_value.split(",")
    return frozenset(address for item in listed if (address := item.strip()))


def _attribute(message: ProcessingRequest, name: str) -> str:
    """Empty for one that is not there."""
    value: str = message.attributes[ATTRIBUTES].fields[name].string_value
    return value


def _headers(received: HttpHeaders) -> dict[str, bytes]:
    fields = received.headers.headers
    headers = {h.key: h.raw_value or h.value.encode() for h in fields}
    if len(headers) < len(fields):  # of equal names the first counts
        headers = {h.key: h.raw_value or h.value.encode() for h in reversed(fields)}
    return headers


def _second(message: Message) -> Sequence[Any]:
    """OpenTelemetry renamed the second fields of ResourceLogs and of what it holds; their numbers stay."""
    repeated: Sequence[Any] = getattr(message, message.DESCRIPTOR.fields_by_number[2].name)
    return repeated


def _set_headers(response: object, set_headers: SetHeaders) -> None:
    for key, value in set_headers:
        option = response.header_mutation.set_headers.add()  # type: ignore[attr-defined]
        option.header.key, option.header.raw_value, option.append_action = key, value, OVERWRITE
