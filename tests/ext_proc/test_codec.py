"""Our events and answers as Envoy's real protobufs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import CommonResponse, ProcessingRequest, ProcessingResponse
from hypothesis import given
from hypothesis import strategies as st
from outcome_log import batch

from homing.ext_proc.codec import (
    CLUSTER,
    LEARN,
    MAX_AROUND,
    REPLICA,
    SUBSET,
    Decoder,
    MalformedMessageError,
    decode,
    encode,
    outcome_lines,
)
from homing.ext_proc.events import (
    Answer,
    BodyAnswer,
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
from homing.ext_proc.outcomes import Outcome

SET = (("x-gateway-destination-endpoint", b"10.0.0.1:8000,10.0.0.2:8000"), ("x-odd", b"\xff\xfe"))
GARBAGE = [b"\xff", b"\x0a\xff", b"hello", b"\x00", b"\x12\x7f\x01"]


def request_headers(*pairs: tuple[str, bytes], end_of_stream: bool = False) -> ProcessingRequest:
    message = ProcessingRequest()
    message.request_headers.end_of_stream = end_of_stream
    message.request_headers.SetInParent()
    for key, raw_value in pairs:
        message.request_headers.headers.headers.add(key=key, raw_value=raw_value)
    return message


def decoded(message: ProcessingRequest) -> object:
    return decode(message.SerializeToString())


def encoded(answer: Answer) -> ProcessingResponse:
    return ProcessingResponse.FromString(encode(answer))


def overwritten(response: CommonResponse) -> list[tuple[str, bytes]]:
    """The headers to set; each must overwrite, and stand in raw_value (`value` would have to be UTF-8)."""
    options = response.header_mutation.set_headers
    assert all(o.append_action == HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD for o in options)
    assert all(o.header.value == "" for o in options)
    return [(o.header.key, o.header.raw_value) for o in options]


def test_headers_come_raw():
    message = request_headers((":path", b"/v1/chat/completions"), ("x-session-id", b"k\xc3\xa4se\xff"))
    assert decoded(message) == RequestHeadersReceived(
        {":path": b"/v1/chat/completions", "x-session-id": b"k\xc3\xa4se\xff"}, model=None, has_body=True
    )


def test_headers_as_text_are_read_too():
    message = request_headers()
    message.request_headers.headers.headers.add(key="x-session-id", value="käse")
    assert decoded(message) == RequestHeadersReceived({"x-session-id": "käse".encode()}, None)


def test_of_equal_names_the_first_counts_as_in_envoys_hash_key():
    message = request_headers(("x-tenant-id", b"first"), ("other", b""), ("x-tenant-id", b"second"))
    assert decoded(message) == RequestHeadersReceived({"x-tenant-id": b"first", "other": b""}, None)


def test_a_request_that_ends_with_its_headers_has_no_body():
    assert decoded(request_headers(end_of_stream=True)) == RequestHeadersReceived({}, None, has_body=False)


@pytest.mark.parametrize(
    ("namespace", "fields", "model"),
    [
        ("homing", {"model": "qwen"}, "qwen"),
        ("homing", {"model": ""}, ""),
        ("homing", {"model": 5}, ""),  # `"model": 5` in the body: a name that no pool has
        ("homing", {"error": "no_model"}, None),
        ("homing", {}, None),
        ("other", {"model": "qwen"}, None),
    ],
)
def test_the_model_is_what_envoy_found(namespace: str, fields: dict[str, object], model: str | None):
    message = request_headers()
    message.metadata_context.filter_metadata[namespace].update(fields)
    assert decoded(message) == RequestHeadersReceived({}, model)


def test_body_and_trailers():
    body, trailers = ProcessingRequest(), ProcessingRequest()
    body.request_body.body, body.request_body.end_of_stream = b"\x00{}\xff", True
    trailers.response_trailers.SetInParent()
    assert decoded(body) == RequestBodyReceived(b"\x00{}\xff")
    assert decoded(trailers) == ResponseTrailersReceived()


def test_an_answers_headers_say_who_serves_and_what_is_to_be_learned():
    message = ProcessingRequest()
    message.response_headers.headers.headers.add(key=":status", raw_value=b"200")
    message.attributes["envoy.filters.http.ext_proc"].update(
        {
            "xds.cluster_name": "p",
            "request.headers['x-homing-learn']": "response:",
            "xds.upstream_host_metadata.filter_metadata['envoy.lb']['hash_key']": "gpu-0",
        }
    )
    assert decoded(message) == ResponseHeadersReceived({":status": b"200"}, "response:", "p", "gpu-0")


def test_a_piece_of_an_answer():
    message = ProcessingRequest()
    message.response_body.body = b"\xff{"
    assert decoded(message) == ResponseBodyReceived(b"\xff{")


def test_the_attributes_are_those_that_the_filter_sends():
    filters = (Path(__file__).parents[2] / "envoy" / "filters.yaml.j2").read_text()
    for name in (CLUSTER, LEARN, REPLICA):
        assert name in filters


OTHERS = ("request_trailers",)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_asked_for_is_answered_in_kind(kind: str):
    message = ProcessingRequest()
    getattr(message, kind).SetInParent()
    assert decoded(message) == OtherReceived(kind)
    assert encoded(OtherAnswer(kind)).WhichOneof("response") == kind


def test_every_request_of_envoys_proto_is_known():
    """A new one would be answered by a field that ProcessingResponse may not have."""
    ours = {"request_headers", "request_body", "response_headers", "response_body", "response_trailers", *OTHERS}
    assert {f.name for f in ProcessingRequest.DESCRIPTOR.oneofs_by_name["request"].fields} == ours


def test_a_message_without_a_request_is_malformed():
    for message in (ProcessingRequest(), ProcessingRequest(observability_mode=True)):
        with pytest.raises(MalformedMessageError, match="without a request"):
            decoded(message)


@pytest.mark.parametrize("data", GARBAGE)
def test_bytes_that_are_no_message_are_malformed(data: bytes):
    with pytest.raises(MalformedMessageError):
        decode(data)
    with pytest.raises(MalformedMessageError):
        outcome_lines(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_malformed(data: bytes):
    for read in (decode, outcome_lines):
        with contextlib.suppress(MalformedMessageError):
            read(data)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (HeadersAnswer(), "request_headers"),
        (HeadersAnswer(SET, want_body=True), "request_headers"),
        (BodyAnswer(), "request_body"),
        (BodyAnswer(b""), "request_body"),
        (TrailersAnswer(), "response_trailers"),
        (OtherAnswer("response_body"), "response_body"),
        (Reject(400, "no"), "immediate_response"),
    ],
)
def test_every_answer_says_what_it_answers(answer: Answer, kind: str):
    """Without its oneof an answer is spurious to Envoy, and the request fails open."""
    assert encoded(answer).WhichOneof("response") == kind
    if kind in ("request_headers", "request_body"):
        assert getattr(encoded(answer), kind).HasField("response")


def test_an_answer_to_headers_sets_headers_and_leaves_the_mode():
    message = encoded(HeadersAnswer(SET))
    assert overwritten(message.request_headers.response) == list(SET)
    assert not message.HasField("mode_override")
    assert not message.request_headers.response.HasField("body_mutation")


def test_asking_for_the_body_keeps_the_stream_open_to_the_end():
    """An override replaces the whole mode: without response_trailer_mode the in-flight count would end too early."""
    mode = encoded(HeadersAnswer(SET, want_body=True)).mode_override
    assert mode.request_body_mode == ProcessingMode.BUFFERED
    assert mode.response_header_mode == ProcessingMode.SKIP
    assert mode.response_body_mode == ProcessingMode.NONE
    assert mode.response_trailer_mode == ProcessingMode.SEND


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff" * 3_000_000])
def test_a_changed_body_brings_its_length(body: bytes):
    response = encoded(BodyAnswer(body)).request_body.response
    assert response.body_mutation.WhichOneof("mutation") == "body"
    assert response.body_mutation.body == body
    assert overwritten(response) == [("content-length", str(len(body)).encode())]


def test_an_unchanged_body_brings_nothing():
    response = encoded(BodyAnswer()).request_body.response
    assert not response.HasField("body_mutation")
    assert not response.HasField("header_mutation")


def test_a_rejection():
    response = encoded(Reject(429, "später")).immediate_response
    assert (response.status.code, response.body.decode(), response.details) == (429, "später", "homing")


NOBODY = "-\t-\t0\t-\t-\t-\t-\t-"


def test_an_outcome_in_full():
    line = "qwen\tgpu-a\t200\t125000\t2500000\t2\thome\t00ff"
    assert outcomes(line) == [Outcome("qwen", "gpu-a", 200, 0.125, 2.5, 2, "home", "00ff")]


@pytest.mark.parametrize(
    ("kind", "streamed"),
    [
        ("text/event-stream", True),
        ("text/event-stream; charset=utf-8", True),
        ("application/json", False),
        ("-", False),
    ],
)
def test_an_outcome_says_whether_its_first_byte_was_the_first_tokens(kind: str, streamed: bool):
    line = f"qwen\tgpu-a\t200\t125000\t2500000\t1\thome\t00ff\t{kind}"
    assert outcomes(line) == [Outcome("qwen", "gpu-a", 200, 0.125, 2.5, 1, "home", "00ff", streamed)]


def test_an_outcome_of_a_request_that_nobody_answered():
    assert outcomes(NOBODY) == [Outcome("", "", 0, None, 0.0, 0, "", "")]


def test_outcomes_come_in_batches_of_any_size():
    pools = [f"p{i}" for i in range(300)]
    assert [o.pool_id for o in outcomes(*(p + NOBODY[1:] for p in pools))] == pools
    assert outcome_lines(batch()) == outcome_lines(b"") == []


def outcomes(*lines: str) -> list[Outcome]:
    return [Outcome.of_line(line) for line in outcome_lines(batch(*lines))]


def test_a_refusal_says_when_to_come_again():
    answer = ProcessingResponse.FromString(encode(Reject(429, "Too much.", retry_after_s=3))).immediate_response
    assert answer.status.code == 429
    (header,) = answer.headers.set_headers
    assert (header.header.key, header.header.raw_value) == ("retry-after", b"3")


@pytest.mark.parametrize("line", ["", "a line of another kind", NOBODY[2:], NOBODY.replace("0", "OK")])
def test_a_line_of_another_kind_is_no_outcome(line: str):
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        Outcome.of_line(line)


@pytest.mark.parametrize(
    ("kind", "answer"), [("request_headers", HeadersAnswer), ("request_body", partial(BodyAnswer, None))]
)
@given(
    set_headers=st.lists(
        st.tuples(st.sampled_from(["x-a", "x-session-id", "x" * 130]), st.binary(max_size=400)), max_size=60
    )
)
def test_headers_are_written_as_protobuf_writes_them(
    kind: str, answer: Callable[[SetHeaders], Answer], set_headers: list[tuple[str, bytes]]
):
    response = ProcessingResponse()
    common = getattr(response, kind).response
    common.SetInParent()
    for key, value in set_headers:
        option = common.header_mutation.set_headers.add()
        option.header.key, option.header.raw_value = key, value
        option.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    assert encode(answer(tuple(set_headers))) == response.SerializeToString()


@pytest.mark.parametrize("set_headers", [(), SET])
def test_asking_for_the_body_is_the_same_message_with_headers_and_without(set_headers: SetHeaders):
    """The one without is written by hand."""
    response = ProcessingResponse.FromString(encode(HeadersAnswer(set_headers, want_body=True)))
    assert response.WhichOneof("response") == "request_headers"
    assert overwritten(response.request_headers.response) == list(set_headers)
    assert response.mode_override == ProcessingMode(
        response_header_mode=ProcessingMode.SKIP,
        request_body_mode=ProcessingMode.BUFFERED,
        response_trailer_mode=ProcessingMode.SEND,
    )


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (None, None),
        ("a:1, b:2", frozenset({"a:1", "b:2"})),
        (["a:1", "b:2"], frozenset({"a:1", "b:2"})),
        ("", frozenset()),
    ],
)
def test_the_subset_hint_is_a_list_or_a_text_with_commas(hint: object, expected: frozenset[str] | None):
    message = ProcessingRequest()
    message.request_headers.SetInParent()
    if hint is not None:
        fields = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        fields.update({"x-gateway-destination-endpoint-subset": hint})
    event = decode(message.SerializeToString())
    assert isinstance(event, RequestHeadersReceived)
    assert event.subset == expected


# what is remembered of earlier messages

PAIRS = st.tuples(st.sampled_from((":path", "x-session-id", "x-tenant-id")), st.binary(max_size=200))
AROUND = st.tuples(
    st.sampled_from(("", "qwen", "llama")), st.sampled_from(("", "p")), st.sampled_from(("", "a:1, b:2"))
)


def around(message: ProcessingRequest, model: str, cluster: str, subset: str) -> ProcessingRequest:
    if model:
        message.metadata_context.filter_metadata["homing"].update({"model": model})
    if cluster:
        message.attributes["envoy.filters.http.ext_proc"].update({CLUSTER: cluster})
    if subset:
        message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update({SUBSET: subset})
    return message


@given(st.lists(st.tuples(st.lists(PAIRS, max_size=4), st.booleans(), AROUND), max_size=8), st.binary(max_size=20))
def test_a_decoder_that_remembers_reads_the_same(
    asked: list[tuple[list[tuple[str, bytes]], bool, tuple[str, str, str]]], rest: bytes
):
    remembering = Decoder()
    for pairs, ends, said in asked:
        data = around(request_headers(*pairs, end_of_stream=ends), *said).SerializeToString()
        for message in (data, data, data + rest, data[:-1], rest):
            assert read_or_refused(remembering.decode, message) == read_or_refused(decode, message)


def read_or_refused(read: Callable[[bytes], object], data: bytes) -> object:
    try:
        return read(data)
    except MalformedMessageError:
        return "refused"


def test_what_follows_the_headers_and_changes_them_is_not_remembered():
    first = request_headers((":path", b"/a")).SerializeToString()
    more = request_headers((":path", b"/b"), ("x-session-id", b"s")).SerializeToString()
    body = ProcessingRequest()
    body.request_body.body = b"{}"
    remembering = Decoder()
    for _ in range(2):
        assert remembering.decode(first + more) == decode(first + more)
        assert remembering.decode(first + body.SerializeToString()) == RequestBodyReceived(b"{}")


def test_models_that_clients_make_up_are_not_remembered_for_ever():
    remembering = Decoder()
    for number in range(3 * MAX_AROUND):
        message = around(request_headers((":path", b"/")), f"model-{number}", "p", "")
        assert remembering.decode(message.SerializeToString()) == RequestHeadersReceived(
            {":path": b"/"}, f"model-{number}", "p"
        )
        assert len(remembering) <= MAX_AROUND
