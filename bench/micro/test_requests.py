"""Whole requests in a picker: from the bytes that Envoy sends to those that it gets, and the stream's end. No sockets.

`pytest bench/micro/test_requests.py`. The client's side is not counted, nor is the line of the access log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle, islice

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from ngh2 import Configuration, Connection, DataReceived, Role
from pytest_benchmark.fixture import BenchmarkFixture

from bench.gateway.wire import conversation
from bench.micro.test_picker import HEADERS, MESSAGES, Sink, picker
from homing.ext_proc.calls import Service
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.framing import framed
from homing.ext_proc.h2_connection import H2Connection
from homing.ext_proc.health import Health

ROUNDS = 4_000
CONVERSATIONS = [conversation(number, 2_048) for number in range(256)]


class Asking:
    """Envoy's side of the connection."""

    def __init__(self) -> None:
        self._asked = picker()
        self._sink = Sink()
        self._client = Connection(Role.CLIENT, Configuration(peer_max_concurrent_streams=1_000))
        service = Service(lambda: Exchange(self._asked), self._asked.finished, Health())
        self._served = H2Connection(service, set())
        self._served.connection_made(self._sink)  # type: ignore[arg-type]
        self._client.initiate_connection()

    def prepared(self, messages: tuple[bytes, ...]) -> list[bytes]:
        """What Envoy sends for one request, piece by piece, the end of its stream included."""
        self._client.receive_data(self._sink.written)
        self._sink.written = b""
        answers = [event for event in self._client.events() if type(event) is DataReceived]
        assert all(len(answer.data) > 5 for answer in answers)
        stream, pieces = self._client.send_request(HEADERS), []
        for message in messages:
            self._client.send_data(stream, framed(message))
            pieces.append(self._client.data_to_send())
        self._client.reset_stream(stream)
        return [*pieces, self._client.data_to_send()]

    def serve(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._served.data_received(piece)

    def measure(self, benchmark: BenchmarkFixture, requests: Iterator[tuple[bytes, ...]]) -> None:
        for _ in range(1_000):
            self.serve(self.prepared(next(requests)))
        benchmark.pedantic(  # type: ignore[no-untyped-call]
            self.serve, setup=lambda: ((self.prepared(next(requests)),), {}), rounds=ROUNDS
        )


def unnamed(number: int) -> bytes:
    """The headers of a request whose id Envoy has made."""
    made, session = ProcessingRequest(), f"3f2b8c1e-7d55-4b7a-9c11-{number:012x}"
    for key, value in (
        (":path", "/v1/chat/completions"),
        ("content-length", "2048"),
        ("x-homing-decision", "fallback"),
        ("x-session-id", session),
        ("x-homing-key", f"/{session}"),
    ):
        made.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    fields = made.metadata_context.filter_metadata["homing"].fields
    fields["model"].string_value, fields["seen"].string_value = "bench-model", "yes"
    made.attributes["envoy.filters.http.ext_proc"].fields["xds.cluster_name"].string_value = "bench"
    encoded: bytes = made.SerializeToString()
    return encoded


def inspected(bodies: Iterator[bytes]) -> Iterator[tuple[bytes, ...]]:
    for number in count():
        made = ProcessingRequest()
        made.request_body.body, made.request_body.end_of_stream = next(bodies), True
        yield unnamed(number), made.SerializeToString()


async def test_a_session_at_home(benchmark: BenchmarkFixture) -> None:
    Asking().measure(benchmark, ((message,) for message in cycle(MESSAGES)))


async def test_a_new_conversation_without_an_id(benchmark: BenchmarkFixture) -> None:
    Asking().measure(benchmark, inspected(cycle([first for first, _ in CONVERSATIONS])))


async def test_a_later_turn_without_an_id(benchmark: BenchmarkFixture) -> None:
    asking = Asking()
    for request in islice(inspected(cycle([first for first, _ in CONVERSATIONS])), len(CONVERSATIONS)):
        asking.serve(asking.prepared(request))
    asking.measure(benchmark, inspected(cycle([second for _, second in CONVERSATIONS])))
