"""The filter's server as Envoy meets it: a real gRPC client over a Unix socket, with each of the transports."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from grpc_health.v1 import health_pb2, health_pb2_grpc
from outcome_log import batch
from picker_serving import LIMIT_S, NOT_SERVING, SERVING, Serving, body, headers, told, until

from homing.ext_proc.events import RequestHeadersReceived
from homing.ext_proc.exchange import Stage
from homing.ext_proc.server_grpc import GrpcTransport
from homing.ext_proc.server_h2 import H2Transport
from homing.ext_proc.transport import EXT_PROC, OUTCOMES


async def test_an_exchange_from_headers_to_the_end_of_the_stream(serving: Serving):
    call = serving.process()
    first = await told(call, headers(x_session_id="s"))
    assert first.request_headers.response.header_mutation.set_headers[0].header.raw_value == b"home"
    assert first.HasField("mode_override")
    second = await told(call, body(b"abc"))
    assert second.request_body.response.body_mutation.body == b"cba"
    assert serving.router.held == 1, "the slot is held until the client's answer has ended"
    await call.done_writing()
    assert await call.read() == grpc.aio.EOF
    assert await call.code() == grpc.StatusCode.OK
    await until(lambda: serving.router.held == 0)
    assert serving.router.requests == [RequestHeadersReceived({"x-session-id": b"s"}, None)]


async def test_every_stream_has_an_exchange_of_its_own(serving: Serving):
    calls = [serving.process() for _ in range(200)]
    answers = await asyncio.gather(*(told(call, headers()) for call in calls))
    assert {answer.WhichOneof("response") for answer in answers} == {"request_headers"}
    assert serving.router.held == 200
    for call in calls:
        call.cancel()
    await until(lambda: serving.router.held == 0)
    assert serving.router.violations == []


@pytest.mark.parametrize("after_body", [False, True])
async def test_a_reset_in_the_middle_releases_the_slot(serving: Serving, after_body: bool):
    call = serving.process()
    await told(call, headers())
    if after_body:
        await told(call, body(b"abc"))
    assert serving.router.held == 1
    call.cancel()
    await until(lambda: serving.router.held == 0)


async def test_a_client_that_is_gone_releases_the_slot(serving: Serving):
    """Envoy crashed: nothing was reset, the connection just ends."""
    channel = grpc.aio.insecure_channel(serving.address, [("grpc.use_local_subchannel_pool", 1)])
    call = channel.stream_stream(f"/{EXT_PROC}/Process")()
    await told(call, headers())
    await channel.close()
    await until(lambda: serving.router.held == 0)


@pytest.mark.parametrize("garbage", [b"\xff\xff", b"", ProcessingRequest(observability_mode=True).SerializeToString()])
async def test_garbage_ends_its_stream_releases_the_slot_and_hurts_no_other(serving: Serving, garbage: bytes):
    good, bad = serving.process(), serving.process()
    await told(good, headers())
    await told(bad, headers())
    await bad.write(garbage)
    assert await bad.code() == grpc.StatusCode.INVALID_ARGUMENT
    await until(lambda: serving.router.held == 1)
    assert (await told(good, body(b"abc"))).request_body.response.body_mutation.body == b"cba"
    good.cancel()


async def test_a_bug_ends_its_own_stream_only(serving: Serving):
    good, bad = serving.process(), serving.process()
    await told(good, headers())
    await bad.write(headers(x_bug="1"))
    assert await bad.code() == grpc.StatusCode.UNKNOWN
    assert (await told(good, body(b"abc"))).WhichOneof("response") == "request_body"
    good.cancel()


async def test_what_the_stage_does_not_foresee_is_answered(serving: Serving):
    call = serving.process()
    assert (await told(call, body(b"early"))).WhichOneof("response") == "request_body"
    assert (await told(call, headers())).request_headers.response.header_mutation.set_headers
    assert serving.router.violations == [Stage.FRESH]
    call.cancel()


async def test_a_body_of_8_mb_passes_both_ways(serving: Serving):
    content = bytes(range(256)) * (8 << 12)
    call = serving.process()
    await told(call, headers())
    answer = (await told(call, body(content))).request_body.response
    assert answer.body_mutation.body == content[::-1]
    assert answer.header_mutation.set_headers[0].header.raw_value == b"8388608"
    call.cancel()


async def test_a_header_of_20_kb_passes_in_the_message_and_as_metadata(serving: Serving):
    """`x-homing-key` shards by metadata. A server that refuses it would make a client's long id a fail-open."""
    call = serving.process(metadata=(("x-homing-key", "k" * 20_000),))
    await told(call, headers(x_session_id="s" * 20_000))
    assert serving.router.requests[0].headers == {"x-session-id": b"s" * 20_000}
    call.cancel()


READINESS = ("", "readiness", EXT_PROC)


async def test_health_says_ready_only_once_it_can_decide(serving: Serving):
    """Envoy asks for "". A picker without a fleet would be asked in vain."""
    assert [await serving.health(name) for name in READINESS] == [NOT_SERVING] * 3
    await serving.transport.set_serving(True)
    assert [await serving.health(name) for name in READINESS] == [SERVING] * 3
    await serving.transport.set_serving(False)
    assert [await serving.health(name) for name in READINESS] == [NOT_SERVING] * 3


async def test_liveness_is_not_readiness(serving: Serving):
    """Whoever restarts what is not alive must not restart a picker that waits for its fleet."""
    assert await serving.health("liveness") == SERVING


async def test_health_knows_no_other_names(serving: Serving):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await serving.health("envoy")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


async def test_whoever_watches_health_is_told_of_every_change(serving: Serving):
    watch = health_pb2_grpc.HealthStub(serving.channel).Watch(health_pb2.HealthCheckRequest(), timeout=LIMIT_S)
    assert (await watch.read()).status == NOT_SERVING
    await serving.transport.set_serving(True)
    assert (await watch.read()).status == SERVING
    await serving.transport.set_serving(False)
    assert (await watch.read()).status == NOT_SERVING
    watch.cancel()


async def test_a_watch_of_an_unknown_name_says_so(serving: Serving):
    asked = health_pb2.HealthCheckRequest(service="envoy")
    watch = health_pb2_grpc.HealthStub(serving.channel).Watch(asked, timeout=LIMIT_S)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def log_message(*statuses: int) -> bytes:
    return batch(*(f"pool\tgpu\t{status}\t1000\t2000\t1\thome\tref" for status in statuses))


async def test_the_access_log_is_read_batch_by_batch(serving: Serving):
    export = serving.channel.unary_unary(f"/{OUTCOMES}/Export")
    assert await export(log_message(200, 503), timeout=LIMIT_S) == b""
    assert await export(log_message(404), timeout=LIMIT_S) == b""
    assert [o.status for o in serving.outcomes] == [200, 503, 404]


@pytest.mark.parametrize("unreadable", [b"\xff\xff", log_message(200).replace(b"gpu", b"g\tu")])
async def test_a_log_message_that_cannot_be_read_is_logged_and_the_rest_is_read(
    serving: Serving, caplog: pytest.LogCaptureFixture, unreadable: bytes
):
    export = serving.channel.unary_unary(f"/{OUTCOMES}/Export")
    with caplog.at_level(logging.WARNING, "homing.ext_proc.backlog"):
        assert await export(unreadable, timeout=LIMIT_S) == b""
        assert await export(log_message(200), timeout=LIMIT_S) == b""
    assert [o.status for o in serving.outcomes] == [200]
    assert len(caplog.records) == 1


async def test_a_stream_to_learn_from_is_ended_by_the_picker(serving: Serving):
    message = ProcessingRequest()
    message.response_headers.SetInParent()
    call = serving.process()
    answer = await told(call, message.SerializeToString())
    assert answer.WhichOneof("response") == "response_headers"
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    assert serving.router.violations == []


async def test_a_stop_lets_open_streams_end_in_their_time(serving: Serving):
    await serving.transport.set_serving(True)
    call = serving.process()
    await told(call, headers())
    stopping = asyncio.create_task(serving.transport.stop(LIMIT_S))
    await asyncio.sleep(0.05)
    assert (await told(call, body(b"abc"))).request_body.response.body_mutation.body == b"cba"
    await call.done_writing()
    assert await call.code() == grpc.StatusCode.OK
    async with asyncio.timeout(LIMIT_S / 2):
        await stopping
    assert serving.router.held == 0
    assert not serving.path.exists()


async def test_a_stop_cuts_what_does_not_end_in_time_and_releases_it(serving: Serving):
    call = serving.process()
    await told(call, headers())
    async with asyncio.timeout(LIMIT_S):
        await serving.transport.stop(0.05)
    assert await call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    await until(lambda: serving.router.held == 0)


async def test_an_address_in_use_is_an_error_and_leaves_the_other_alone(serving: Serving):
    with pytest.raises(OSError, match="in use"):
        await serving.another().start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}"):
            await serving.another(address).start()
    call = serving.process()
    await told(call, headers())
    call.cancel()


async def test_two_pickers_never_share_a_port(serving: Serving):
    """gRPC would let them, and the kernel deal out Envoy's connections by chance."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    one, other = serving.another(address), serving.another(address)
    try:
        await one.start()
        with pytest.raises(OSError, match="cannot listen"):
            await other.start()
    finally:
        await one.stop(0)
        await other.stop(0)


@pytest.mark.parametrize("kind", [GrpcTransport, H2Transport], ids=["grpc", "h2"])
async def test_a_socket_that_a_dead_picker_left_is_taken_over(
    short_directory: Path, kind: type[GrpcTransport] | type[H2Transport]
):
    path = short_directory / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    serving = Serving(path, kind)
    await serving.transport.start()
    call = serving.process()
    await told(call, headers())
    call.cancel()
    await serving.channel.close()
    await serving.transport.stop(0)


async def test_an_answer_that_comes_later_comes_when_the_wait_is_over(serving: Serving):
    call = serving.process()
    await call.write(headers(x_read="1"))
    await until(lambda: serving.router.wait is not None)
    assert serving.router.requests == []
    assert serving.router.wait is not None
    serving.router.wait.set_result(None)
    answer = ProcessingResponse.FromString(await call.read())
    assert answer.request_headers.response.header_mutation.set_headers[0].header.raw_value == b"home"
    assert serving.router.held == 1
    await call.done_writing()
    await until(lambda: serving.router.held == 0)


async def test_a_stream_reset_while_it_waits_cancels_the_wait_and_takes_no_slot(serving: Serving):
    call = serving.process()
    await call.write(headers(x_read="1"))
    await until(lambda: serving.router.wait is not None)
    call.cancel()
    assert serving.router.wait is not None
    await until(serving.router.wait.cancelled)
    assert (serving.router.requests, serving.router.held) == ([], 0)


async def test_who_is_connected_may_be_asking(serving: Serving):
    knows = serving.kind is H2Transport
    assert serving.transport.connected is not knows, "gRPC's library does not tell"
    _, writer = await asyncio.open_unix_connection(serving.path)
    await until(lambda: serving.transport.connected)
    writer.close()
    await until(lambda: serving.transport.connected is not knows)
