"""Where a running Envoy differs from the file: endpoints, hash keys, missing filters, an old version. Pure, but for
`ask`. Source: Envoy's admin interface, /server_info and /config_dump?include_eds.

Whether fragments were pasted by a former version is `stale`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpx
import msgspec

from homing.core.config import Address
from homing.core.fleet import Fleet, Pool

OLDEST = (1, 38)
TIMEOUT_S = 10.0


class DriftError(Exception):
    """The admin interface cannot be asked, or does not answer as Envoy's does."""


@dataclass(frozen=True, slots=True)
class Host:
    """`hash_key` is empty where there is none."""

    address: str
    hash_key: str


@dataclass(frozen=True, slots=True)
class Running:
    """What an Envoy works with. `version` as it says it; `text`: its whole configuration."""

    version: str
    hosts: Mapping[str, tuple[Host, ...]]
    text: str


def ask(url: str) -> Running:
    """Blocks. Raises DriftError."""
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client:
            info, dump = client.get("/server_info"), client.get("/config_dump?include_eds")
            info.raise_for_status()
            dump.raise_for_status()
            return read(info.content, dump.content)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # msgspec's errors are ValueErrors
        first, *_ = str(error).split("\n")  # httpx adds where to read about a status
        raise DriftError(f"{url}: {first}") from None


def read(info: bytes, dump: bytes) -> Running:
    """Raises msgspec.DecodeError."""
    version = msgspec.json.decode(info, type=_ServerInfo).version
    configs = msgspec.json.decode(dump, type=_Dump).configs
    hosts: dict[str, tuple[Host, ...]] = {}
    for config in configs:
        for each in (*config.static_endpoint_configs, *config.dynamic_endpoint_configs):
            hosts[each.endpoint_config.cluster_name] = tuple(each.endpoint_config.hosts())
    return Running(version, hosts, dump.decode(errors="replace"))


def drifts(fleet: Fleet, filters: Iterable[str], running: Running) -> tuple[str, ...]:
    """One line each. `filters`: the names of those that homing needs."""
    found: list[str] = []
    numbers = re.search(r"/(\d+)\.(\d+)\.", running.version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        found.append(f"Envoy {numbers[1]}.{numbers[2]} is older than {OLDEST[0]}.{OLDEST[1]}")
    missing = [name for name in filters if not re.search(rf'"name":\s*"{re.escape(name)}"', running.text)]
    if missing:
        found.append(f"filters are missing: {', '.join(missing)} (homing render envoy --fragment http-filters)")
    for pool in fleet.pools:
        hosts = running.hosts.get(pool.id)
        if hosts is None:
            found.append(f"pool {pool.id}: Envoy has no cluster of that name")
        else:
            found += _drifts_of(pool, hosts)
    return tuple(found)


def _drifts_of(pool: Pool, hosts: tuple[Host, ...]) -> Iterable[str]:
    by_address = {host.address: host for host in hosts}
    by_key = {host.hash_key: host for host in hosts if host.hash_key}
    mine: set[str] = set()
    for replica in pool.hosts:  # data-parallel ranks are one host
        name = f"pool {pool.id}, replica {replica.id}"
        named = Address.parse(replica.address).ip is None  # Envoy resolves it: only the hash key tells
        host = by_key.get(replica.id) if named else by_address.get(replica.address)
        if host is None and (elsewhere := by_key.get(replica.id)) is not None:
            mine.add(elsewhere.address)
            yield f"{name}: at {elsewhere.address} in Envoy, at {replica.address} in the file"
        elif host is None:
            yield f"{name} ({replica.address}): not in Envoy"
        else:
            mine.add(host.address)
            if host.hash_key != replica.id:
                said = f"the hash key {host.hash_key}" if host.hash_key else "no hash key"
                yield f"{name}: has {said} in Envoy; sessions would not come home by the hash"
    for host in hosts:
        if host.address not in mine:
            yield f"pool {pool.id}: Envoy has {host.address}, which the file does not"


class _ServerInfo(msgspec.Struct):
    version: str


class _SocketAddress(msgspec.Struct):
    address: str
    port_value: int = 0


class _At(msgspec.Struct):
    socket_address: _SocketAddress | None = None


class _Endpoint(msgspec.Struct):
    address: _At | None = None


class _Lb(msgspec.Struct):
    hash_key: str = ""


class _FilterMetadata(msgspec.Struct):
    lb: _Lb = msgspec.field(default_factory=_Lb, name="envoy.lb")


class _Metadata(msgspec.Struct):
    filter_metadata: _FilterMetadata = msgspec.field(default_factory=_FilterMetadata)


class _LbEndpoint(msgspec.Struct):
    endpoint: _Endpoint | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Locality(msgspec.Struct):
    lb_endpoints: list[_LbEndpoint] = []


class _Assignment(msgspec.Struct):
    cluster_name: str = ""
    endpoints: list[_Locality] = []

    def hosts(self) -> Iterable[Host]:
        for locality in self.endpoints:
            for each in locality.lb_endpoints:
                at = each.endpoint.address.socket_address if each.endpoint and each.endpoint.address else None
                if at is not None:
                    yield Host(str(Address(at.address, at.port_value)), each.metadata.filter_metadata.lb.hash_key)


class _EndpointConfig(msgspec.Struct):
    endpoint_config: _Assignment = msgspec.field(default_factory=_Assignment)


class _Config(msgspec.Struct):
    static_endpoint_configs: list[_EndpointConfig] = []
    dynamic_endpoint_configs: list[_EndpointConfig] = []


class _Dump(msgspec.Struct):
    configs: list[_Config]
