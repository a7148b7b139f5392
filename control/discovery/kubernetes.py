"""The serving endpoints of a Kubernetes service: EndpointSlices, listed, then watched from that version on. They are
listed again now and then: a watch never hears that its server is gone without a word (its machine, a load balancer).

A pod's name is the replica's id. A pod that terminates is not ready from that moment on, but it serves while its
preStop hook runs: it stays, so that the hook can drain it (docs/kubernetes.md), and leaves when it serves no more.
Sources: kubernetes.io, API concepts, "Efficient detection of changes"; EndpointSlices, "Conditions".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

from homing.control.discovery.source import Found, SourceError
from homing.core.config import Address, Kubernetes

if TYPE_CHECKING:
    from lightkube import AsyncClient
    from lightkube.models.discovery_v1 import Endpoint, EndpointPort
    from lightkube.resources.discovery_v1 import EndpointSlice

GONE = 410  # the version is too old to be watched from: list again
WATCH_S = 60  # the server ends a watch after so long; the next one goes on where it ended
LIST_EVERY_S = 120.0
RELIST_S = 0.5
SERVICE_LABEL = "kubernetes.io/service-name"

T = TypeVar("T")


class KubernetesSource:
    def __init__(self, settings: Kubernetes, list_every_s: float = LIST_EVERY_S) -> None:
        self._settings = settings
        self._list_every_s = list_every_s

    async def follow(self) -> AsyncIterator[tuple[Found, ...]]:
        client = _client(self._settings)  # anew each time: a pod's token is replaced within the hour
        from lightkube import ApiError
        from lightkube.core.exceptions import LoadResourceError
        from lightkube.core.generic_client import httpx as transport  # type: ignore[attr-defined]  # the one that it uses

        try:
            while True:
                try:
                    async for found in self._listed_and_watched(client):
                        yield found
                except ApiError as error:
                    if error.status.code != GONE:
                        raise
                    await asyncio.sleep(RELIST_S)
        except (ApiError, transport.HTTPError, LoadResourceError, OSError) as error:
            raise SourceError(f"service {self._settings.namespace}/{self._settings.service}: {error}") from None
        finally:
            await client.close()

    async def _listed_and_watched(self, client: AsyncClient) -> AsyncIterator[tuple[Found, ...]]:
        from lightkube.resources.discovery_v1 import EndpointSlice

        namespace, service = self._settings.namespace, self._settings.service
        listing = client.list(EndpointSlice, namespace=namespace, labels={SERVICE_LABEL: service})
        slices = {_name(each): each async for each in listing}
        told = self._found(slices.values())
        yield told
        changes = client.watch(
            EndpointSlice,
            namespace=namespace,
            labels={SERVICE_LABEL: service},
            server_timeout=WATCH_S,
            resource_version=listing.resourceVersion,
        )
        async for kind, changed in _within(self._list_every_s, aiter(changes)):
            if kind == "BOOKMARK":
                continue
            if kind == "DELETED":
                slices.pop(_name(changed), None)
            else:
                slices[_name(changed)] = changed
            if (found := self._found(slices.values())) != told:
                told = found
                yield told

    def _found(self, slices: Iterable[EndpointSlice]) -> tuple[Found, ...]:
        """An endpoint may be in two slices for a moment: it counts once."""
        by_id = {found.id: found for each in slices for found in self._endpoints(each)}
        return tuple(by_id[replica_id] for replica_id in sorted(by_id))

    def _endpoints(self, each: EndpointSlice) -> Iterable[Found]:
        port = _port(each.ports or [], self._settings.port)
        for endpoint in each.endpoints or []:
            if port is not None and _serves(endpoint) and endpoint.addresses:
                address = str(Address(endpoint.addresses[0], port))
                pod = endpoint.targetRef.name if endpoint.targetRef else None
                yield Found(pod or f"{endpoint.addresses[0]}:{port}", address)


async def _within(seconds: float, changes: AsyncIterator[T]) -> AsyncIterator[T]:
    """What comes in that time. Not `asyncio.timeout`: it would reach into whoever asks for the next one."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + seconds
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        while True:
            yield await asyncio.wait_for(anext(changes), end_s - clock())


def _client(settings: Kubernetes) -> AsyncClient:
    try:
        from lightkube import AsyncClient, KubeConfig
        from lightkube.core.exceptions import ConfigError
    except ImportError:
        raise SourceError("discovery by Kubernetes needs the extra: pip install 'homing[kubernetes]'") from None
    try:
        config = KubeConfig.from_file(settings.kubeconfig) if settings.kubeconfig else KubeConfig.from_service_account()
        return AsyncClient(config=config, namespace=settings.namespace)
    except (ConfigError, OSError) as error:
        raise SourceError(f"no access to Kubernetes: {error}") from None


def _name(each: EndpointSlice) -> str:
    return (each.metadata.name if each.metadata else None) or ""


def _port(ports: Iterable[EndpointPort], wanted: str) -> int | None:
    for port in ports:
        if port.port is not None and wanted in ("", port.name, str(port.port)):
            return port.port
    return None


def _serves(endpoint: Endpoint) -> bool:
    """`serving` is `ready` without regard to termination. Absent means ready, says the API, and serving is as ready."""
    conditions = endpoint.conditions
    if conditions is None:
        return True
    return (conditions.ready if conditions.serving is None else conditions.serving) is not False
