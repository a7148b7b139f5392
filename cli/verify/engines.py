"""The engines behind the gateway: which they are, and what they have counted."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from urllib.parse import urlsplit

import click
import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from homing.cli.verify import given
from homing.core.verify.observed import Counters, Engines

TIMEOUT_S = 3.0
DEFAULT_API = "http://127.0.0.1:8600"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

_TOTALS = {
    "vllm:prefix_cache_queries_total": "queried",
    "vllm:prefix_cache_hits_total": "found",
    "vllm:request_success_total": "served",
    "vllm:num_preemptions_total": "preemptions",
}


class _Replica(msgspec.Struct):
    id: str
    address: str


class _Pool(msgspec.Struct):
    served_name: str
    replicas: list[_Replica]
    aliases: list[str] = []


class _Fleet(msgspec.Struct):
    pools: list[_Pool]


Urls = Mapping[str, str]
"""Name of an engine -> where it is."""


def named(urls: Sequence[str]) -> Urls:
    """Those of --engine, by host and port. Raises click.UsageError."""
    found = {}
    for url in urls:
        whole = given.address("--engine", url if "://" in url else f"http://{url}")
        found[whole.netloc.decode("ascii")] = str(whole).rstrip("/")
    if len(found) < len(urls):
        raise click.UsageError("--engine: one is named twice")
    return found


def of_the_file(path: str, model: str) -> Urls:
    """By the control service that the file names; where none answers, by the replicas in the file."""
    from homing.cli.config_file import load

    try:
        return of_control(None, path, model)
    except click.ClickException:
        pools = [
            _Pool(p.served_name, [_Replica(r.id, str(r.address)) for r in p.replicas], list(p.aliases))
            for p in load(path).pools
        ]
        return _of_pools(pools, model)


def of_control(api: str | None, path: str | None, model: str) -> Urls:
    """Those of the fleet of the control service at `api`, or of the one that the file at `path` names; how it is spoken
    to is in the file. Raises click.ClickException."""
    from homing.cli.api_client import Api, ApiPlace

    place = ApiPlace(api, None, None, None, None)
    return _of_pools(Api.at(path or "", place).call("GET", "/api/fleet", _Fleet).pools, model)


def of_this_machine(url: str, model: str) -> Urls:
    """By the control service at its default address, for a gateway on this machine."""
    if urlsplit(url).hostname not in LOOPBACK:
        return {}
    try:
        return of_control(DEFAULT_API, None, model)
    except click.ClickException:
        return {}


def _of_pools(pools: Sequence[_Pool], model: str) -> Urls:
    """The ranks of one address are one engine, by its address."""
    serving = [pool for pool in pools if model == pool.served_name or model in pool.aliases] or pools
    replicas = [replica for pool in serving for replica in pool.replicas]
    at = Counter(replica.address for replica in replicas)
    return {
        replica.id if at[replica.address] == 1 else replica.address: (
            replica.address if "://" in replica.address else f"http://{replica.address}"
        )
        for replica in replicas
    }


class Scraper:
    """Asks for /metrics. An asynchronous context manager; what does not answer is None, and nothing is raised."""

    def __init__(self, urls: Urls, verify: ssl.SSLContext | bool = True) -> None:
        """`verify`: whom to trust, of engines that speak TLS."""
        self._urls = urls
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=verify)

    async def __aenter__(self) -> Scraper:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._client.aclose()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._urls)

    async def all(self) -> Engines:
        counted = await asyncio.gather(*map(self._one, self._urls.values()))
        return dict(zip(self._urls, counted, strict=True))

    async def _one(self, url: str) -> Counters | None:
        try:
            response = await self._client.get(f"{url}/metrics")
            return counters(response.text) if response.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError):
            return None


def counters(text: str) -> Counters:
    """Of all ranks at the address together. Raises ValueError for what is not Prometheus' text."""
    totals: dict[str, float] = {}
    ranks: set[str] = set()
    cache_tokens, block_size, caching = 0.0, 0, None
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (name := _TOTALS.get(sample.name)) is not None:
                totals[name] = totals.get(name, 0.0) + sample.value
                ranks.add(sample.labels.get("engine", ""))
            elif sample.name == "vllm:cache_config_info":
                block_size = _number(sample.labels.get("block_size"))
                cache_tokens += block_size * _number(sample.labels.get("num_gpu_blocks"))
                caching = {"True": True, "False": False}.get(sample.labels.get("enable_prefix_caching", ""), caching)
    return Counters(
        totals.get("queried"),
        totals.get("found"),
        totals.get("served", 0.0),
        totals.get("preemptions", 0.0),
        cache_tokens or None,
        block_size or None,
        caching,
        max(1, len(ranks)),
    )


def _number(label: str | None) -> int:
    return int(label) if label is not None and label.isdigit() else 0
