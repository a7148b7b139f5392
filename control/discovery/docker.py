"""Running containers with a label. Their events tell of changes; a list every half minute, of what events missed.

A container's name is the replica's id. Labels of its own say more: `homing.id`, `homing.port`, `homing.weight`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from homing.control.discovery.source import Found, SourceError
from homing.core.config import Address, Docker

LIST_EVERY_S = 30.0
TIMEOUT_S = 10
SETTLE_S = 0.1  # several containers that start at once are one change
Changed = Callable[[], None]


class Network(msgspec.Struct, rename="pascal"):
    ip_address: str = msgspec.field(default="", name="IPAddress")


class NetworkSettings(msgspec.Struct, rename="pascal"):
    networks: dict[str, Network | None] | None = None


class Container(msgspec.Struct, rename="pascal"):
    """One entry of the engine's list (Docker Engine API, ContainerSummary), as far as it is used."""

    names: list[str]
    labels: dict[str, str] | None = None
    network_settings: NetworkSettings | None = None


class Engine(Protocol):
    """What is used of docker.APIClient."""

    def containers(self, *, filters: Mapping[str, str]) -> list[object]: ...

    def events(self, *, filters: Mapping[str, str]) -> Iterable[bytes]: ...

    def close(self) -> None: ...


class DockerSource:
    def __init__(self, settings: Docker) -> None:
        self._settings = settings

    async def follow(self) -> AsyncIterator[tuple[Found, ...]]:
        client = await asyncio.to_thread(_connected, self._settings.engine)
        changed, left, over = asyncio.Event(), threading.Event(), threading.Event()
        heard = _threadsafe(changed)
        told = (client, self._settings.label, heard, left, over)
        threading.Thread(target=_listen, args=told, name="docker", daemon=True).start()
        try:
            while True:
                changed.clear()
                yield await asyncio.to_thread(self._list, client)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LIST_EVERY_S):
                        await changed.wait()
                if over.is_set():
                    raise SourceError(f"{self._settings.engine}: the stream of events has ended")
                await asyncio.sleep(SETTLE_S)
        finally:
            left.set()
            client.close()

    def _list(self, client: Engine) -> tuple[Found, ...]:
        from docker.errors import DockerException

        try:
            listed = client.containers(filters={"label": self._settings.label, "status": "running"})
            containers = msgspec.convert(listed, list[Container])
        except (DockerException, OSError, msgspec.ValidationError) as error:
            raise SourceError(f"{self._settings.engine}: {error}") from None
        found = (_found(container, self._settings) for container in containers)
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.id))


def _connected(engine: str) -> Engine:
    try:
        from docker import APIClient
        from docker.errors import DockerException
    except ImportError:
        raise SourceError("discovery of containers needs the extra: pip install 'homing[docker]'") from None
    try:
        client: Engine = APIClient(base_url=engine, version="auto", timeout=TIMEOUT_S)
    except (DockerException, OSError) as error:
        raise SourceError(f"{engine}: {error}") from None
    return client


def _threadsafe(changed: asyncio.Event) -> Changed:
    loop = asyncio.get_running_loop()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(changed.set)

    return tell


def _listen(client: Engine, label: str, changed: Changed, left: threading.Event, over: threading.Event) -> None:
    """In a thread of its own until nobody listens any more (`left`), or the engine ends the stream, or it breaks: it
    is `over` then. Any event is a reason to list again."""
    from docker.errors import DockerException

    with contextlib.suppress(DockerException, OSError, ValueError):
        for _ in client.events(filters={"type": "container", "label": label}):
            if left.is_set():
                break
            changed()
    over.set()
    changed()


def _found(container: Container, settings: Docker) -> Found | None:
    """None for a container that is in no network, or whose labels are none of ours to use."""
    labels = container.labels or {}
    networks = (container.network_settings.networks if container.network_settings else None) or {}
    names = [settings.network] if settings.network else sorted(networks)
    hosts = [at.ip_address for name in names if (at := networks.get(name)) is not None and at.ip_address]
    replica_id = labels.get("homing.id") or container.names[0].lstrip("/")
    try:
        port, weight = int(labels.get("homing.port", settings.port)), int(labels.get("homing.weight", 1))
    except ValueError:
        return None
    if not hosts or not 1 <= port <= 65535 or not 1 <= weight <= 128:
        return None
    return Found(replica_id, str(Address(hosts[0], port)), weight)
