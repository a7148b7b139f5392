"""A first `homing.yaml` from what is there: from engines that answer, or from an Envoy's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import msgspec
import yaml

from homing.core.config import Address
from homing.core.config.address import HTTPS, EngineAddress
from homing.core.config.models import POOL_ID

TIMEOUT_S = 5.0


class InitError(Exception):
    """There is nothing to begin with; its text says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One that answers: where, and what it serves."""

    address: EngineAddress
    model: str


@dataclass(frozen=True, slots=True)
class FoundPool:
    """`served_name` is empty where it is not known. `ca`: a file with the authorities of its engines' certificates."""

    id: str
    served_name: str
    replicas: tuple[EngineAddress, ...]
    ca: str = ""


class _Model(msgspec.Struct):
    id: str
    parent: str | None = None  # vLLM: the model of a LoRA adapter


class _Models(msgspec.Struct):
    data: list[_Model]


def ask_engine(client: httpx.Client, url: str) -> Engine:
    """What the engine at `url` serves. Raises InitError."""
    parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
    if parts.scheme not in ("http", "https"):
        raise InitError(f"{url}: engines are spoken to by http:// or https://")
    try:
        at = Address.parse(parts.netloc if parts.port else f"{parts.netloc}:8000")
        address = EngineAddress(at.host, at.port, secure=parts.scheme == "https")
        response = client.get(f"{parts.scheme}://{address}/v1/models", timeout=TIMEOUT_S)
        response.raise_for_status()
        models = msgspec.json.decode(response.content, type=_Models).data
    except (ValueError, httpx.HTTPError) as error:  # msgspec's errors are ValueErrors
        first, *_ = str(error).split("\n")  # httpx adds where to read about a status
        raise InitError(f"{url}: {first}") from None
    own = [model.id for model in models if model.parent is None]
    if not own:
        raise InitError(f"{url}: serves no model")
    return Engine(address, own[0])


def pools_of(engines: Sequence[Engine], ca: str = "") -> tuple[FoundPool, ...]:
    """Engines that serve the same model are a pool."""
    by_model: dict[str, list[EngineAddress]] = {}
    for engine in engines:
        by_model.setdefault(engine.model, []).append(engine.address)
    taken: set[str] = set()
    return tuple(
        FoundPool(_pool_id(model, taken), model, tuple(found), ca if any(at.secure for at in found) else "")
        for model, found in by_model.items()
    )


def pools_of_envoy(text: str) -> tuple[FoundPool, ...]:
    """The clusters of an Envoy configuration (YAML or JSON) that have endpoints. Raises InitError."""
    try:
        loaded = yaml.safe_load(text)
        clusters = msgspec.convert(loaded, _Bootstrap).static_resources.clusters
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise InitError(f"not a configuration of Envoy: {' '.join(str(error).split())[:200]}") from None
    found = tuple(FoundPool(c.name, "", tuple(c.addresses())) for c in clusters if not c.name.startswith("homing-"))
    with_replicas = tuple(pool for pool in found if pool.replicas)
    if not with_replicas:
        raise InitError("no cluster in static_resources has endpoints with an address and a port")
    return with_replicas


def file_text(pools: Iterable[FoundPool], source: str) -> str:
    """A `homing.yaml`. What has to be looked at is said in comments."""
    lines = [f"# Written by homing init from {source}.", "pools:"]
    for pool in pools:
        lines.append(f"  {json.dumps(pool.id)}:")
        if pool.served_name:
            lines.append(f"    served_name: {json.dumps(pool.served_name)}")
        else:
            lines.append("    # served_name: what vLLM calls the model, if it is not the name above")
        if pool.ca:
            lines.append(f"    engine: {{ca: {json.dumps(f'file:{pool.ca}')}}}")
        lines.append("    replicas:")
        for address in pool.replicas:
            written = f"{HTTPS if address.secure else ''}{address}"
            replica_id = f"{address.host}:{address.port}".lstrip(":")
            lines.append(f"      - {{id: {json.dumps(replica_id)}, address: {json.dumps(written)}}}")
    lines.append("# The ids make the hash: give them names that outlive the addresses before the first session.")
    return "\n".join(lines) + "\n"


def _pool_id(model: str, taken: set[str]) -> str:
    """The last part of the model's name, made fit."""
    base = re.sub(r"[^a-z0-9._-]+", "-", model.rpartition("/")[2].lower()).strip("._-")[:55] or "pool"
    base = base if _is_pool_id(base) else f"pool-{base}"
    pool_id, number = base, 2
    while pool_id in taken:
        pool_id, number = f"{base}-{number}", number + 1
    taken.add(pool_id)
    return pool_id


def _is_pool_id(text: str) -> bool:
    try:
        POOL_ID(text)
    except ValueError:
        return False
    return True


class _SocketAddress(msgspec.Struct):
    address: str
    port_value: int | None = None


class _EnvoyAddress(msgspec.Struct):
    socket_address: _SocketAddress | None = None


class _Endpoint(msgspec.Struct):
    address: _EnvoyAddress | None = None


class _LbEndpoint(msgspec.Struct):
    endpoint: _Endpoint | None = None


class _Locality(msgspec.Struct):
    lb_endpoints: list[_LbEndpoint] = []


class _Assignment(msgspec.Struct):
    endpoints: list[_Locality] = []


class _Cluster(msgspec.Struct):
    name: str
    load_assignment: _Assignment | None = None

    def addresses(self) -> Iterable[EngineAddress]:
        for locality in self.load_assignment.endpoints if self.load_assignment else ():
            for each in locality.lb_endpoints:
                at = each.endpoint.address.socket_address if each.endpoint and each.endpoint.address else None
                if at is not None and at.port_value is not None:
                    yield EngineAddress(at.address, at.port_value)


class _Static(msgspec.Struct):
    clusters: list[_Cluster] = []


class _Bootstrap(msgspec.Struct):
    static_resources: _Static
