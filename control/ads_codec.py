"""Discovery messages between protobuf and the events of `ads`. The only protobuf of the stream."""

from __future__ import annotations

from dataclasses import dataclass

from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)

from homing.control.ads import DiscoveryRequested, Send
from homing.control.delta import DeltaRequested, SendDelta

POOLS = "homing.pools"
"""In a node's metadata: a list of pools' ids."""


@dataclass(frozen=True, slots=True)
class Node:
    """Who the client says it is; sent with the first request of a stream only. `pools`: the only ones that it wants to
    know of; none: all."""

    id: str = ""
    cluster: str = ""
    version: str = ""
    pools: frozenset[str] = frozenset()


def decode(request: DiscoveryRequest) -> DiscoveryRequested:
    error = request.error_detail.message if request.HasField("error_detail") else None
    return DiscoveryRequested(
        request.type_url, request.version_info, request.response_nonce, tuple(request.resource_names), error
    )


def decode_node(request: DiscoveryRequest | DeltaDiscoveryRequest) -> Node:
    build = request.node.user_agent_build_version.version
    version = f"{build.major_number}.{build.minor_number}.{build.patch}" if build.major_number else ""
    listed = request.node.metadata.fields[POOLS].list_value.values if POOLS in request.node.metadata.fields else ()
    pools = frozenset(value.string_value for value in listed if value.string_value)
    return Node(request.node.id, request.node.cluster, version, pools)


def encode(send: Send) -> DiscoveryResponse:
    response = DiscoveryResponse(version_info=send.version, type_url=send.type_url, nonce=send.nonce)
    for _, resource in send.resources:
        response.resources.add(type_url=send.type_url, value=resource)
    return response


def decode_delta(request: DeltaDiscoveryRequest) -> DeltaRequested:
    return DeltaRequested(
        request.type_url,
        tuple(request.resource_names_subscribe),
        tuple(request.resource_names_unsubscribe),
        tuple(request.initial_resource_versions.items()),
        request.response_nonce,
        request.error_detail.message if request.HasField("error_detail") else None,
    )


def encode_delta(send: SendDelta) -> DeltaDiscoveryResponse:
    response = DeltaDiscoveryResponse(
        system_version_info=send.version, type_url=send.type_url, nonce=send.nonce, removed_resources=send.removed
    )
    for name, version, resource in send.resources:
        added = response.resources.add(name=name, version=version)
        added.resource.type_url, added.resource.value = send.type_url, resource
    return response
