"""The ADS server with a real gRPC client."""

import asyncio
import contextlib
import gc
import tracemalloc

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from homing.control.ads import Answer
from homing.control.ads_server import AdsServer, PortInUseError
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot
from homing.core.config import Address


def snapshot(cds="a1", eds="e1", size=0):
    sets = {CDS: {"a": cds.encode()}, EDS: {"a": eds.encode() + b"." * size}, LDS: {}, RDS: {}}
    return Snapshot({t: Resources.of(r) for t, r in sets.items()})


class Client:
    """A stream that answers nothing by itself."""

    def __init__(self, channel):
        self.call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()

    async def ask(self, type_url, *names, of=None, error=None):
        request = DiscoveryRequest(type_url=type_url, resource_names=names, node=Node(id="envoy-1"))
        if of is not None:
            request.version_info, request.response_nonce = of.version_info, of.nonce
        if error is not None:
            request.error_detail.message = error
        await self.call.write(request)

    async def response(self):
        async with asyncio.timeout(5):
            return await self.call.read()


@pytest.fixture
async def server():
    server = AdsServer()
    server.port = await server.start(Address("127.0.0.1", 0))
    yield server
    await server.stop()


@pytest.fixture
async def connect(server):
    async with contextlib.AsyncExitStack() as stack:

        async def connected(**options):
            arguments = [("grpc.use_local_subchannel_pool", 1), *options.items()]
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=arguments)
            await stack.enter_async_context(channel)
            return Client(channel)

        yield connected


async def test_client_gets_the_snapshot_and_its_ack_is_known(server, connect, until):
    server.publish(snapshot())
    client = await connect()
    await client.ask(CDS)
    response = await client.response()
    assert (response.type_url, response.resources[0].type_url, response.resources[0].value) == (CDS, CDS, b"a1")
    assert await server.wait_acked(snapshot().version, 0.05) is Answer.PENDING
    await client.ask(CDS, of=response)
    await until(lambda: server.counts.acks[CDS])
    assert await server.wait_acked(snapshot().version, 5) is Answer.ACKED
    (stream,) = server.streams
    assert stream.node.id == "envoy-1"
    assert stream.types[CDS].accepted == response.version_info
    assert (server.counts.responses[CDS], server.counts.acks[CDS]) == (1, 1)


async def test_client_that_came_before_the_first_snapshot_is_told_when_there_is_one(server, connect, until):
    client = await connect()
    await client.ask(CDS)
    await until(lambda: server.streams and CDS in server.streams[0].types)
    server.publish(snapshot())
    assert (await client.response()).resources[0].value == b"a1"


async def test_refusal_is_known_logged_once_and_not_answered(server, connect, caplog):
    server.publish(snapshot())
    client = await connect()
    await client.ask(EDS, "a")
    await client.ask(EDS, "a", of=await client.response(), error="malformed\naddress")
    assert await server.wait_acked(snapshot().version, 5) is Answer.NACKED
    assert server.streams[0].types[EDS].error == "malformed\naddress"
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == [
        "Envoy envoy-1 refused ClusterLoadAssignment: malformed address"
    ]
    server.publish(snapshot(eds="e2"))
    assert (await client.response()).resources[0].value == b"e2"


async def test_waiting_for_acks_takes_all_streams(server, connect, until):
    server.publish(snapshot())
    first, second = await connect(), await connect()
    await first.ask(CDS)
    await second.ask(CDS)
    answer, other = await first.response(), await second.response()
    await first.ask(CDS, of=answer)
    await until(lambda: server.counts.acks[CDS] == 1)
    waiting = asyncio.create_task(server.wait_acked(snapshot().version, 5))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await second.ask(CDS, of=other)
    assert await waiting is Answer.ACKED


async def test_a_late_client_is_waited_for_once_until_it_has_caught_up(server, connect, until, caplog):
    server.publish(snapshot())
    client = await connect()
    await client.ask(CDS)
    first = await client.response()
    assert await server.wait_acked("v1", 0.05) is Answer.PENDING
    assert await server.wait_acked("v1", 5) is Answer.ACKED
    server.publish(snapshot(cds="a2"))
    second = await client.response()
    assert await server.wait_acked("v2", 5) is Answer.ACKED
    await client.ask(CDS, of=first)
    await client.ask(CDS, of=second)
    await until(lambda: not server.streams[0].late)
    server.publish(snapshot(cds="a3"))
    assert await server.wait_acked("v3", 0.05) is Answer.PENDING
    assert server.counts.late == 2
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "Envoy envoy-1 has not answered to snapshot v1 in time",
        "Envoy envoy-1 has not answered to snapshot v3 in time",
    ]


async def test_nobody_connected_is_nobody_to_wait_for(server):
    server.publish(snapshot())
    assert await server.wait_acked(snapshot().version, 5) is Answer.ACKED


async def test_a_client_that_leaves_is_not_waited_for(server, connect):
    server.publish(snapshot())
    client = await connect()
    await client.ask(CDS)
    await client.response()
    waiting = asyncio.create_task(server.wait_acked(snapshot().version, 5))
    await asyncio.sleep(0.05)
    client.call.cancel()
    assert await waiting is Answer.ACKED
    assert server.streams == ()


async def test_half_closed_stream_ends(server, connect):
    client = await connect()
    await client.ask(CDS)
    await client.call.done_writing()
    assert await client.response() is grpc.aio.EOF
    assert await client.call.code() is grpc.StatusCode.OK
    assert server.streams == ()


async def test_port_in_use_is_an_error(server):
    other = AdsServer()
    with pytest.raises(PortInUseError):
        await other.start(Address("127.0.0.1", server.port))


async def test_delta_streams_are_served_beside_the_others(server, until):
    server.publish(snapshot(eds="first"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources()
        await call.write(DeltaDiscoveryRequest(type_url=EDS, resource_names_subscribe=["a", "none"]))
        response = await asyncio.wait_for(call.read(), 5)
        assert [r.name for r in response.resources] == ["a"]
        assert list(response.removed_resources) == ["none"]
        await call.write(DeltaDiscoveryRequest(type_url=EDS, response_nonce=response.nonce))
        await until(lambda: server.counts.acks[EDS] == 1)
        newest = snapshot(eds="second")
        server.publish(newest)
        response = await asyncio.wait_for(call.read(), 5)
        assert [r.name for r in response.resources] == ["a"]
        refusal = DeltaDiscoveryRequest(type_url=EDS, response_nonce=response.nonce)
        refusal.error_detail.message = "no address"
        await call.write(refusal)
        assert await server.wait_acked(newest.version, 5) is Answer.NACKED
        assert server.streams[0].types[EDS].error == "no address"


async def test_frozen_client_does_not_grow_memory_and_gets_only_the_newest(server, connect, until):
    """It reads nothing while 300 snapshots of 100 kB go by: 30 MB, of which a queue would hold all."""
    client = await connect(**{"grpc.http2.lookahead_bytes": 1})
    server.publish(snapshot(eds="first", size=100_000))
    await client.ask(EDS, "a")
    await until(lambda: server.counts.responses[EDS] == 1)
    gc.collect()
    tracemalloc.start()
    for i in range(300):
        server.publish(snapshot(eds=f"{i:05}", size=100_000))
        await asyncio.sleep(0.001)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 3_000_000
    assert server.counts.responses[EDS] < 150
    written = 0
    while (response := await client.response()).resources[0].value[:5] != b"00299":
        written += 1
    assert written < 150
    await client.ask(EDS, "a", of=response)
    assert await server.wait_acked(server.snapshot.version, 5) is Answer.ACKED


async def test_keepalive_pings_as_envoy_sends_them_are_no_attack(server, connect):
    client = await connect(
        **{
            "grpc.keepalive_time_ms": 1000,
            "grpc.keepalive_timeout_ms": 1000,
            "grpc.http2.max_pings_without_data": 0,
            "grpc.keepalive_permit_without_calls": 1,
        }
    )
    server.publish(snapshot())
    await client.ask(CDS)
    await client.response()
    await asyncio.sleep(4.2)
    server.publish(snapshot(cds="a2"))
    assert (await client.response()).resources[0].value == b"a2"
