"""The pickers' metrics, fetched when the control service is scraped, so that one scrape shows the gateway whole."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import httpx
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from homing.control.picker_http import TIMEOUT_S, client, fetch

log = logging.getLogger(__name__)

MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Scraped:
    """One picker's answer; None when there was none in time. `picker` is its name."""

    picker: str
    text: str | None


class PickerMetrics:
    """Asks every picker for GET /metrics. An asynchronous context manager."""

    def __init__(
        self, addresses: Mapping[str, str], timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> None:
        """`addresses` by the pickers' names. `tls`: None where they speak plain text."""
        self._timeout_s = timeout_s
        self._clients = {name: client(address, tls) for name, address in addresses.items()}

    async def __aenter__(self) -> PickerMetrics:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._clients.values():
            await each.aclose()

    async def scrape(self) -> tuple[Scraped, ...]:
        """In the order of the names, after the time limit at the latest."""
        texts = await asyncio.gather(*map(self._fetch, self._clients.values()))
        return tuple(Scraped(name, text) for name, text in zip(self._clients, texts, strict=True))

    async def _fetch(self, picker: httpx.AsyncClient) -> str | None:
        body = await fetch(picker, "/metrics", self._timeout_s, MAX_BYTES)
        try:
            return None if body is None else body.decode()
        except UnicodeDecodeError:
            return None


def exposition(registry: CollectorRegistry, scraped: Sequence[Scraped]) -> bytes:
    """Our own metrics and the pickers', each of theirs with a label `picker`. May take long: not on the loop."""
    up = GaugeMetricFamily("homing_picker_up", "Whether a picker gave its metrics in time.", labels=["picker"])
    families: dict[str, Metric] = {family.name: family for family in registry.collect()}
    for each in scraped:
        theirs = _labelled(each)
        up.add_metric([each.picker], float(bool(theirs)))
        for family in theirs:
            ours = families.setdefault(family.name, family)
            if ours is not family and ours.type == family.type:
                ours.samples.extend(family.samples)
    return generate_latest(_Families((*families.values(), up)))


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def _labelled(scraped: Scraped) -> list[Metric]:
    """Empty for a text that is no exposition."""
    try:
        families = list(text_string_to_metric_families(scraped.text or ""))
    except (ValueError, IndexError, KeyError) as e:  # what the parser raises depends on what it meets
        log.warning("the metrics of picker %s cannot be read: %s", scraped.picker, e)
        return []
    for family in families:
        family.samples = [s._replace(labels={"picker": scraped.picker, **s.labels}) for s in family.samples]
    return families
