"""Envoy alone, with one of its own load balancers: health checks, retries, and a file of endpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.routing.fleet import Member

POLICIES = ("ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH", "MAGLEV")
SESSION_HEADER = "x-session-id"
_TYPES = "type.googleapis.com/envoy.extensions"
_HTTP = f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions"


def endpoints(members: Sequence[Member]) -> dict[str, object]:
    """The endpoints' file."""
    found = [{"endpoint": {"address": _address(member.port)}} for member in members]
    load = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "replicas",
        "endpoints": [{"lb_endpoints": found}],
    }
    return {"resources": [load]}


def write_endpoints(file: Path, members: Sequence[Member]) -> None:
    """Moved into its place, which is what Envoy watches for."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(endpoints(members)))
    new.rename(file)


def bootstrap(port: int, admin: int, policy: str, file: Path) -> dict[str, object]:
    """Envoy's configuration."""
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), 1_000_000)
    cluster = {
        "name": "replicas",
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"path_config_source": {"path": str(file)}}},
        "lb_policy": policy,
        "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [limits]},
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/health"},
            }
        ],
        "typed_extension_protocol_options": {
            _HTTP.removeprefix("type.googleapis.com/"): {
                "@type": _HTTP,
                "common_http_protocol_options": {"idle_timeout": "4s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
    }
    resources = {"listeners": [_listener(port)], "clusters": [cluster]}
    return {
        "admin": {"address": _address(admin)},
        "node": {"id": "bench", "cluster": "bench"},
        "static_resources": resources,
    }


def _listener(port: int) -> dict[str, object]:
    route = {
        "cluster": "replicas",
        "timeout": "0s",
        "hash_policy": [{"header": {"header_name": SESSION_HEADER}}],
        "retry_policy": {
            "retry_on": "connect-failure,refused-stream,reset",
            "num_retries": 2,
            "retry_host_predicate": [
                {
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {"@type": f"{_TYPES}.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
                }
            ],
            "host_selection_retry_max_attempts": "5",
        },
    }
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "plain",
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"}}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {
        "name": "plain",
        "address": _address(port),
        "per_connection_buffer_limit_bytes": 64 << 20,
        "filter_chains": [chain],
    }


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
