"""One request in a picker, by its parts: `pytest bench/micro/test_picker.py`. Times are of one request each."""

from __future__ import annotations

import time
from itertools import count, cycle
from random import Random

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from ngh2 import Configuration, Connection, Role
from prometheus_client import CollectorRegistry
from pytest_benchmark.fixture import BenchmarkFixture

from homing.core.chains import Chains
from homing.core.config import parse
from homing.core.fleet import Fleet, Pool, Replica
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.prefix.index import Index
from homing.core.session import Homes
from homing.ext_proc import codec
from homing.ext_proc.calls import Service
from homing.ext_proc.events import Event, HeadersAnswer, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange, Stage
from homing.ext_proc.framing import framed
from homing.ext_proc.h2_connection import H2Connection
from homing.ext_proc.health import Health
from homing.ext_proc.metrics import Ttft
from homing.ext_proc.outcomes import Outcome
from homing.ext_proc.picker import Picker
from homing.ext_proc.prefixes import Prefixes
from homing.ext_proc.transport import EXT_PROC

SESSIONS = 256
REPLICAS = tuple(Replica(f"gpu-{n}", f"10.0.0.{n}:8000") for n in range(3))
FILE = "pools: {bench: {served_name: bench-model, replicas: [{id: gpu-0, address: '10.0.0.0:8000'}]}}\n"
ANSWER = HeadersAnswer(
    (
        ("x-gateway-destination-endpoint", b"10.0.0.1:8000,10.0.0.2:8000"),
        ("x-homing-decision", b"home"),
        ("x-homing-ref", b"f506c26ad72a06f1514e5cce1d12de5c:gpu-2"),
    )
)
LINE = "bench\tgpu-2\t200\t1250\t2500\t1\thome\tf506c26ad72a06f1514e5cce1d12de5c:gpu-2"
HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"homing-pickers"),
    (b":path", f"/{EXT_PROC}/Process".encode()),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


def message(number: int) -> bytes:
    """As Envoy sends it with our filters."""
    made = ProcessingRequest()
    for key, value in (
        (":path", "/v1/chat/completions"),
        ("content-length", "2048"),
        ("user-agent", "OpenAI/Python 1.50.0"),
        ("x-homing-decision", "fallback"),
        ("x-session-id", f"session-{number}"),
        ("x-homing-given", "1"),
        ("x-homing-key", f"/session-{number}"),
    ):
        made.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    fields = made.metadata_context.filter_metadata["homing"].fields
    fields["model"].string_value, fields["seen"].string_value = "bench-model", "yes"
    made.attributes["envoy.filters.http.ext_proc"].fields["xds.cluster_name"].string_value = "bench"
    encoded: bytes = made.SerializeToString()
    return encoded


MESSAGES = [message(number) for number in range(SESSIONS)]


class Routed:
    set_headers = ANSWER.set_headers
    want_body = reroute = False

    def release(self) -> None:
        pass


class Router:
    """Decides nothing: what is measured is what carries the decision."""

    def route(self, request: RequestHeadersReceived) -> Routed:
        return Routed()

    def violated(self, stage: Stage, event: Event) -> None:
        raise AssertionError(stage)


class Sink:
    """A socket that takes everything."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


def test_decode(benchmark: BenchmarkFixture) -> None:
    messages = cycle(MESSAGES)
    benchmark(lambda: codec.decode(next(messages)))


def test_encode(benchmark: BenchmarkFixture) -> None:
    benchmark(codec.encode, ANSWER)


def picker() -> Picker:
    """As `homing up` makes it, for three replicas, over a clock that runs 50 times as fast: replicas that only answer
    as fast as a picker can decide would be overloaded, and every decision another one."""
    begun = time.monotonic()

    def clock() -> float:
        return 1.8e9 + (time.monotonic() - begun) * 50

    prefixes = Prefixes(Index())
    placer = Placer(
        Homes(1e6, 100_000), Chains(1e6, 100_000), Load(), b"secret", Random().randrange, prefixes=prefixes.index
    )
    made = Picker(placer, clock, Ttft(CollectorRegistry()), prefixes=prefixes, chance=Random().random)
    made.configure(parse(FILE, "benchmark"))
    made.adopt(Fleet((Pool("bench", "bench-model", replicas=REPLICAS),)))
    return made


def test_a_session_at_home(benchmark: BenchmarkFixture) -> None:
    """The decision alone, from the event to the answer, and the slot given back."""
    asked, events = picker(), cycle([codec.decode(message) for message in MESSAGES])

    def decide() -> None:
        exchange = Exchange(asked)
        exchange.receive(next(events))
        exchange.close()

    for _ in range(4 * SESSIONS):
        decide()
    benchmark(decide)


def test_a_new_session(benchmark: BenchmarkFixture) -> None:
    """The same for a request without an id, whose body is not read."""
    asked, numbers = picker(), count()

    def decide() -> None:
        name = b"3f2b8c1e-7d55-4b7a-9c11-%d" % next(numbers)
        headers = {":path": b"/v1/completions", "content-length": b"2048", "x-session-id": name}
        exchange = Exchange(asked)
        exchange.receive(RequestHeadersReceived(headers | {"x-homing-key": b"/" + name}, "bench-model", "bench"))
        exchange.close()

    benchmark(decide)


def test_outcome(benchmark: BenchmarkFixture) -> None:
    benchmark(Outcome.of_line, LINE)


async def test_transport(benchmark: BenchmarkFixture) -> None:
    """A stream opened, asked, answered and reset, codec included: all but the decision."""
    sink, client = Sink(), Connection(Role.CLIENT, Configuration(peer_max_concurrent_streams=1_000))
    served = H2Connection(Service(lambda: Exchange(Router()), _nothing, Health()), set())  # type: ignore[arg-type]
    served.connection_made(sink)  # type: ignore[arg-type]
    client.initiate_connection()
    messages = cycle(MESSAGES)

    def request() -> None:
        stream = client.send_request(HEADERS)
        client.send_data(stream, framed(next(messages)))
        served.data_received(client.data_to_send())
        client.receive_data(sink.written)
        client.events()
        sink.written = b""
        client.reset_stream(stream)
        served.data_received(client.data_to_send())

    benchmark(request)


def _nothing(outcome: Outcome) -> None:
    pass
