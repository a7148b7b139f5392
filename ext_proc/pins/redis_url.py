"""From the URL in the file to a client of redis-py: one server, sentinels, or a cluster.

Forms: those of `redis.from_url` (redis://, rediss://, unix://), and with several hosts those of the package `limits`:
`redis+sentinel://HOST:PORT,HOST:PORT/SERVICE[/DB]` and `redis+cluster://HOST:PORT,HOST:PORT`; `rediss+...` with TLS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

CONNECT_S = 1.0
ANSWER_S = 1.0
DEFAULT_PORT = 6379
SENTINEL_PORT = 26379

_SEVERAL = re.compile(
    r"redis(?P<tls>s?)\+(?P<kind>sentinel|cluster)://(?P<user>[^@/]*@)?(?P<hosts>[^/?]+)(?P<path>/[^?]*)?(?P<query>\?.*)?"
)


class RedisUrlError(ValueError):
    """The text shows nothing of the URL: there may be a password in it."""


class Pipeline(Protocol):
    """The part of redis-py's pipelines that is used."""

    def get(self, name: bytes) -> object: ...

    def set(self, name: bytes, value: bytes, *, px: int | None = None, nx: bool = False) -> object: ...

    def delete(self, *names: bytes) -> object: ...

    def xadd(self, name: bytes, fields: Mapping[bytes, bytes], *, maxlen: int, approximate: bool) -> object: ...

    def xread(self, streams: Mapping[bytes, bytes], count: int) -> object: ...

    async def execute(self, raise_on_error: bool = True) -> list[object]: ...


class Client(Protocol):
    """A server or a cluster: both answer pipelines."""

    def pipeline(self) -> Pipeline: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _One:
    """A client that never makes transactions: a pipeline is a batch."""

    redis: Redis

    def pipeline(self) -> Pipeline:
        return self.redis.pipeline(transaction=False)  # type: ignore[return-value]

    async def aclose(self) -> None:
        await self.redis.aclose()


@dataclass(frozen=True, slots=True)
class _Many:
    cluster: RedisCluster

    def pipeline(self) -> Pipeline:
        return self.cluster.pipeline()  # type: ignore[return-value]

    async def aclose(self) -> None:
        await self.cluster.aclose()


def client(url: str) -> Client:
    """Connects to nobody yet. Raises RedisUrlError."""
    try:
        several = _SEVERAL.fullmatch(url)
        return _One(Redis(connection_pool=ConnectionPool(**_keys(url)))) if several is None else _several(several)
    except (ValueError, TypeError):
        raise RedisUrlError("not a URL of a Redis") from None


def server(url: str) -> Redis:
    """For who needs transactions: one server, or whoever the sentinels say is the master. Raises RedisUrlError, also
    for a cluster."""
    made = client(url)
    if not isinstance(made, _One):
        raise RedisUrlError("a cluster")
    return made.redis


def _several(url: re.Match[str]) -> Client:
    """The user and the options of the URL are those of every server."""
    first, *_ = texts = url["hosts"].split(",")
    service, _, database = (url["path"] or "").strip("/").partition("/")
    keys = _keys(f"redis{url['tls']}://{url['user'] or ''}{first}/{database or 0}{url['query'] or ''}")
    for part in ("host", "port", "connection_class"):
        keys.pop(part, None)
    keys["ssl"] = bool(url["tls"])
    if url["kind"] == "cluster":
        del keys["db"]
        keys["retry"] = Retry(NoBackoff(), 1)  # to go where a slot has moved to
        nodes = [ClusterNode(*_host(text, DEFAULT_PORT)) for text in texts]
        return _Many(RedisCluster(startup_nodes=nodes, **keys))
    if not service:
        raise ValueError("no service")
    theirs = {key: value for key, value in keys.items() if key not in ("username", "password", "db")}
    hosts = [_host(text, SENTINEL_PORT) for text in texts]
    sentinel = Sentinel(hosts, sentinel_kwargs=theirs, **keys)  # type: ignore[no-untyped-call]
    return _One(sentinel.master_for(service))


def _host(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if colon and not port.endswith("]") else (text.strip("[]"), default_port)


def _keys(url: str) -> dict[str, Any]:
    """As redis-py understands the URL. No retries inside: a round that fails is the next round's matter."""
    return {
        **parse_url(url),
        "socket_timeout": ANSWER_S,
        "socket_connect_timeout": CONNECT_S,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
        "protocol": 2,
    }
