"""Fleet -> Envoy's protobufs: the same text as `homing render envoy`, parsed, checked and serialised.

Outside `ext_proc/codec` the only place that knows protobuf. Importing this module registers the types of every
extension that the templates name, without which json_format cannot read an Any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import yaml
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.access_loggers.open_telemetry.v3 import logs_service_pb2 as _log  # noqa: F401
from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as _matching  # noqa: F401
from envoy.extensions.compression.gzip.decompressor.v3 import gzip_pb2 as _gzip  # noqa: F401
from envoy.extensions.filters.http.composite.v3 import composite_pb2 as _composite  # noqa: F401
from envoy.extensions.filters.http.decompressor.v3 import decompressor_pb2 as _decompressor  # noqa: F401
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2 as _ext_proc  # noqa: F401
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2 as _mutation  # noqa: F401
from envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2 as _json  # noqa: F401
from envoy.extensions.filters.http.lua.v3 import lua_pb2 as _lua  # noqa: F401
from envoy.extensions.filters.http.router.v3 import router_pb2 as _router  # noqa: F401
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.load_balancing_policies.maglev.v3 import maglev_pb2 as _maglev  # noqa: F401
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2 as _override  # noqa: F401
from envoy.extensions.load_balancing_policies.ring_hash.v3 import ring_hash_pb2 as _ring  # noqa: F401
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2 as _robin  # noqa: F401
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2 as _previous  # noqa: F401
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2 as _tls  # noqa: F401
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as _options  # noqa: F401
from envoy.type.matcher.v3 import http_inputs_pb2 as _inputs  # noqa: F401
from google.protobuf import json_format

from homing.control.envoy_config import ADS, Json, Source, Wiring, render
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot
from homing.core.config import Config
from homing.core.fleet import Fleet

TYPES = {CDS: Cluster, EDS: ClusterLoadAssignment, LDS: Listener, RDS: RouteConfiguration}

PARTS = {each.DESCRIPTOR.name: each for each in (Cluster, HttpConnectionManager, VirtualHost)}

Resource = dict[str, Json]
Named = dict[str, Resource]


def snapshot(config: Config, fleet: Fleet, wiring: Wiring) -> Snapshot:
    """Everything Envoy needs of `fleet`, for ADS. Raises json_format.ParseError on a bug in a template only."""
    named: dict[str, Named] = {
        CDS: _clusters(config, fleet, wiring, ADS),
        EDS: _endpoints(config, fleet, wiring),
        LDS: {"homing": _load("listener_full.yaml.j2", config, fleet, wiring, ADS)},
        RDS: {"homing": _load("route_config.yaml.j2", config, fleet, wiring, ADS)},
    }
    return Snapshot(
        types={url: _resources(url, by_name) for url, by_name in named.items()},
        needs={EDS: frozenset(p.id for p in fleet.pools), RDS: frozenset({"homing"})},
    )


def boot_files(config: Config, fleet: Fleet, wiring: Wiring, directory: str) -> Mapping[str, bytes]:
    """The same as files that Envoy boots from while control is away (`Source(directory=...)`), by file name.

    Endpoints and routes stand inside the clusters and the listener: one rename replaces a whole type.
    """
    source = Source(directory=directory)
    clusters = _clusters(config, fleet, wiring, source)
    listener = _load("listener_full.yaml.j2", config, fleet, wiring, source)
    return {"cds.json": _discovery(CDS, clusters), "lds.json": _discovery(LDS, {"homing": listener})}


def _clusters(config: Config, fleet: Fleet, wiring: Wiring, source: Source) -> Named:
    clusters = {p.id: _load("cluster.yaml.j2", config, fleet, wiring, source, p.id) for p in fleet.pools}
    return clusters | {"homing-pickers": _load("pickers.yaml.j2", config, fleet, wiring, source)}


def _endpoints(config: Config, fleet: Fleet, wiring: Wiring) -> Named:
    loaded = {p.id: _load("endpoints.yaml.j2", config, fleet, wiring, ADS, p.id) for p in fleet.pools}
    return {pool_id: cast("Resource", assignment["load_assignment"]) for pool_id, assignment in loaded.items()}


def _load(
    template: str, config: Config, fleet: Fleet, wiring: Wiring, source: Source, pool_id: str | None = None
) -> Resource:
    pool = fleet.pool(pool_id) if pool_id else None
    loaded: Resource = yaml.load(  # the C loader is ten times as fast; both are safe
        render(template, config, fleet, wiring, source, pool=pool), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return loaded


def _resources(type_url: str, named: Named) -> Resources:
    """The versions are those of the text: protobuf serialises the maps inside an Any in another order in each process,
    and an Envoy that reconnects to a new one would be sent everything again."""
    texts = {name: json.dumps(resource, sort_keys=True).encode() for name, resource in named.items()}
    return Resources.of({name: _encode(type_url, resource) for name, resource in named.items()}, texts)


def _encode(type_url: str, resource: Resource) -> bytes:
    encoded: bytes = json_format.ParseDict(resource, TYPES[type_url]()).SerializeToString(deterministic=True)
    return encoded


def _discovery(type_url: str, resources: Named) -> bytes:
    encoded = [{"@type": type_url, **resource} for resource in resources.values()]
    return json.dumps({"version_info": "last-good", "resources": encoded}).encode()


def canonical(part: str, tree: Mapping[str, Json]) -> Mapping[str, Json]:
    """A tree of Envoy's type of that name (`PARTS`) without defaults and in one spelling, whoever wrote it. What this
    version's protobufs do not know is returned as it is."""
    try:
        message = json_format.ParseDict(dict(tree), PARTS[part](), ignore_unknown_fields=True)
        said: Resource = json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (json_format.Error, TypeError):
        return tree
    return said
