"""Discovery messages between protobuf and the events of `ads`. The only protobuf of the stream."""

from __future__ import annotations

from dataclasses import dataclass

from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from homing.control.ads import DiscoveryRequested, Send


@dataclass(frozen=True, slots=True)
class Node:
    """Who the client says it is; sent with the first request of a stream only."""

    id: str = ""
    cluster: str = ""
    version: str = ""


def decode(request: DiscoveryRequest) -> DiscoveryRequested:
    error = request.error_detail.message if request.HasField("error_detail") else None
    return DiscoveryRequested(
        request.type_url, request.version_info, request.response_nonce, tuple(request.resource_names), error
    )


def decode_node(request: DiscoveryRequest) -> Node:
    build = request.node.user_agent_build_version.version
    version = f"{build.major_number}.{build.minor_number}.{build.patch}" if build.major_number else ""
    return Node(request.node.id, request.node.cluster, version)


def encode(send: Send) -> DiscoveryResponse:
    response = DiscoveryResponse(version_info=send.version, type_url=send.type_url, nonce=send.nonce)
    for _, resource in send.resources:
        response.resources.add(type_url=send.type_url, value=resource)
    return response
