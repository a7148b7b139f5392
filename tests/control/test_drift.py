import asyncio
import json

import pytest

from homing.control.drift import DriftError, Host, Running, ask, drifts, read
from homing.core.fleet import Fleet, Pool, Replica

FLEET = Fleet((Pool("p", "m", replicas=(Replica("a", "10.0.0.1:80"), Replica("b", "10.0.0.2:80"))),))
A, B = Host("10.0.0.1:80", "a"), Host("10.0.0.2:80", "b")
VERSION = "c5f9d7/1.40.0/Clean/RELEASE/BoringSSL"


def found(*hosts, version=VERSION, fleet=FLEET, filters=(), text=""):
    return drifts(fleet, filters, Running(version, {"p": hosts}, text))


def test_an_envoy_as_the_file_says_does_not_differ():
    assert found(A, B, filters=("homing.key",), text='{"name": "homing.key"}') == ()


def test_ranks_are_one_endpoint():
    ranks = Fleet((Pool("p", "m", replicas=tuple(Replica(f"a-{n}", "10.0.0.1:80", rank=n) for n in range(3))),))
    assert found(A, fleet=ranks) == ()


def test_endpoints_that_are_missing_too_many_or_elsewhere():
    assert found(A, Host("10.0.0.9:80", "c")) == (
        "pool p, replica b (10.0.0.2:80): not in Envoy",
        "pool p: Envoy has 10.0.0.9:80, which the file does not",
    )
    assert found(A, Host("10.0.0.9:80", "b")) == (
        "pool p, replica b: at 10.0.0.9:80 in Envoy, at 10.0.0.2:80 in the file",
    )


def test_hash_keys_that_are_missing_or_others():
    assert found(Host("10.0.0.1:80", ""), Host("10.0.0.2:80", "x")) == (
        "pool p, replica a: has no hash key in Envoy; sessions would not come home by the hash",
        "pool p, replica b: has the hash key x in Envoy; sessions would not come home by the hash",
    )


def test_a_name_is_known_by_its_hash_key():
    named = Fleet((Pool("p", "m", replicas=(Replica("a", "vllm.internal:80"),)),))
    assert found(Host("10.0.0.7:80", "a"), fleet=named) == ()


def test_a_cluster_and_filters_that_are_missing_and_an_old_version():
    lines = drifts(FLEET, ("homing.key", "homing.model"), Running("x/1.30.2/Clean", {}, '{"name":"homing.key"}'))
    assert lines == (
        "Envoy 1.30 is older than 1.38",
        "filters are missing: homing.model (homing render envoy --fragment http-filters)",
        "pool p: Envoy has no cluster of that name",
    )


def test_the_admin_interfaces_answers_are_read():
    at = {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}}
    keyed = {"endpoint": at, "metadata": {"filter_metadata": {"envoy.lb": {"hash_key": "a"}}}}
    assignment = {"cluster_name": "p", "endpoints": [{"lb_endpoints": [keyed, {"endpoint": {}}]}]}
    dump = {"configs": [{"@type": "other"}, {"dynamic_endpoint_configs": [{"endpoint_config": assignment}]}]}
    running = read(json.dumps({"version": VERSION, "state": "LIVE"}).encode(), json.dumps(dump).encode())
    assert (running.version, running.hosts) == (VERSION, {"p": (A,)})


async def test_what_is_no_admin_interface_is_said_in_one_line():
    async def nothing(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(DriftError) as caught:
            await asyncio.to_thread(ask, f"http://{host}:{port}")
    assert ("404 Not Found" in str(caught.value), str(caught.value).count("\n")) == (True, 0)
