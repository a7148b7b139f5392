"""What Envoy is to know, as one consistent value: resources by type, each type with its version.

Bytes in, bytes out: the state machine of a stream (`ads`) handles these without protobuf.
Source: Envoy's docs/root/api-docs/xds_protocol.rst; the idea of refusing dangling references is go-control-plane's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

PREFIX = "type.googleapis.com/"
CDS = PREFIX + "envoy.config.cluster.v3.Cluster"
EDS = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LDS = PREFIX + "envoy.config.listener.v3.Listener"
RDS = PREFIX + "envoy.config.route.v3.RouteConfiguration"

ORDER = (CDS, EDS, LDS, RDS)
"""Make before break: what refers comes after what it refers to ("Eventual consistency considerations")."""


@dataclass(frozen=True, slots=True)
class Resources:
    """All resources of one type by name, each serialised; the version that tells this set from another, and each one's
    own."""

    by_name: Mapping[str, bytes]
    version: str
    versions: Mapping[str, str]

    @classmethod
    def of(cls, by_name: Mapping[str, bytes], texts: Mapping[str, bytes] | None = None) -> Resources:
        """Versions are hashes of `texts`, which say the same as the resources; without any, of the resources."""
        versions = {name: _hash(text) for name, text in (texts or by_name).items()}
        digest = blake2b(digest_size=8)
        for name in sorted(versions):
            digest.update(len(name).to_bytes(4) + name.encode() + versions[name].encode())
        return cls(by_name, digest.hexdigest(), versions)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`types` has an entry for every type of ORDER; `needs` names what clusters need of EDS and listeners of RDS."""

    types: Mapping[str, Resources]
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def dangling(self) -> tuple[tuple[str, str], ...]:
        """(type, name) of every resource that is referred to and missing. A snapshot that has any must not be sent."""
        return tuple(
            (type_url, name)
            for type_url, names in self.needs.items()
            for name in sorted(names - self.types[type_url].by_name.keys())
        )

    @property
    def version(self) -> str:
        digest = blake2b(digest_size=8)
        for type_url in ORDER:
            digest.update(self.types[type_url].version.encode())
        return digest.hexdigest()


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()
