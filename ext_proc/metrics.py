"""A picker's counts in Prometheus' form. Read when scraped; nothing here runs for each request but the histogram."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from homing.core.placement.load import Place

if TYPE_CHECKING:
    from homing.ext_proc.picker import Picker

TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

COUNTERS = {
    "decisions": ("homing_decisions", "Requests placed, by why", ("pool", "reason")),
    "fallbacks": ("homing_fallbacks", "Requests that Envoy placed alone", ("pool",)),
    "outcomes": ("homing_outcomes", "Requests finished, by who served and how", ("pool", "replica", "status")),
    "retried": ("homing_retried", "Requests that took more than one attempt", ("pool",)),
    "rehomed": ("homing_rehomed", "Sessions whose home was corrected by who really served", ("pool",)),
    "keyless": ("homing_keyless", "Requests without a session's id, by what their history told", ("outcome",)),
    "closed": ("homing_sessions_closed", "Sessions ended by word, not by idle time", ("by",)),
    "learned": ("homing_learned", "Places that an answer told: of a response, of an engine's session", ("pool",)),
    "repairs": ("homing_repairs", "Conversations repaired, by what was done", ("pool", "repair")),
    "observed_repairs": ("homing_repairs_observed", "Repairs not made, in mode observe", ("pool", "repair")),
    "system_texts": ("homing_system_texts", "Turns compared with their session's system text", ("pool", "outcome")),
    "complete": ("homing_context_complete", "Prompts looked at that have every system text in them", ("pool",)),
    "incomplete": ("homing_context_incomplete", "Prompts looked at that lack one, or were refused", ("pool", "reason")),
    "unchecked": ("homing_context_unchecked", "Requests whose prompt was to be looked at and was not", ("reason",)),
    "texts_read": ("homing_system_texts_read", "Sessions whose system text Redis was asked for", ("outcome",)),
    "rejected": ("homing_rejected", "Requests refused by the picker", ("reason",)),
    "odd_ids": ("homing_odd_session_ids", "Session ids that are long, duplicated, empty or not ASCII", ("kind",)),
    "violations": ("homing_protocol_violations", "Messages from Envoy that the stage did not foresee", ("stage",)),
}


class Ttft(Collector):
    """Time to a replica's first byte, by place, which goes with the replica. All on one loop, so without the locks of
    the library's own histogram, which take four times as long."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[Place, list[int]] = {}  # by bucket, the last for all that is longer
        self._sums: dict[Place, float] = {}
        registry.register(self)

    def observe(self, place: Place, seconds: float) -> None:
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = [0] * (len(TTFT_BUCKETS) + 1)
            self._sums[place] = 0.0
        counts[bisect_left(TTFT_BUCKETS, seconds)] += 1
        self._sums[place] += seconds

    def forget(self, place: Place) -> None:
        self._counts.pop(place, None)
        self._sums.pop(place, None)

    def collect(self) -> Iterable[Metric]:
        text = "Time to a replica's first byte, from Envoy's access log"
        family = HistogramMetricFamily("homing_ttft_seconds", text, labels=("pool", "replica"))
        limits = [*(str(limit) for limit in TTFT_BUCKETS), "+Inf"]
        for place, counts in self._counts.items():
            buckets = list(zip(limits, accumulate(counts), strict=True))
            family.add_metric(place, buckets, self._sums[place])
        yield family


class SettingsCollector(Collector):
    def __init__(self, newest: Callable[[], bool]) -> None:
        """`newest`: whether the newest file is what the picker goes by."""
        self._newest = newest

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("homing_config_good", "Whether the newest file is used", value=float(self._newest()))


class PickerCollector(Collector):
    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    def collect(self) -> Iterable[Metric]:
        picker = self._picker
        for attribute, (name, text, labels) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for key, value in getattr(picker.counts, attribute).items():
                family.add_metric((key,) if isinstance(key, str) else key, value)
            yield family
        in_flight = GaugeMetricFamily("homing_in_flight", "Requests in flight", labels=("pool", "replica"))
        for pool in picker.fleet.by_id.values():
            for replica in pool.pool.replicas:
                place = (pool.pool.id, replica.id)
                in_flight.add_metric(place, picker.placer.load.in_flight(place))
        yield in_flight
        yield GaugeMetricFamily("homing_sessions", "Sessions remembered", value=len(picker.placer.homes))
        evicted = CounterMetricFamily("homing_sessions_evicted", "Sessions forgotten before their time")
        evicted.add_metric((), picker.placer.homes.evicted)
        yield evicted
