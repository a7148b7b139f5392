"""What is counted of the sharing, in Prometheus' form."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from homing.ext_proc.pins.counts import PinCounts

COUNTERS = {
    "told": ("homing_pins_told", "Changes of homes that siblings or Redis have taken", ("peer",)),
    "heard": ("homing_pins_heard", "Changes of homes that siblings or Redis told, and that were news", ("peer",)),
    "retold": ("homing_pins_retold", "Times that the whole table was told again", ("peer",)),
    "failed": ("homing_pins_failed", "Exchanges with siblings or Redis that failed, by why", ("peer", "why")),
    "read": ("homing_pins_read", "Sessions seen for the first time, by what others knew of them", ("peer", "outcome")),
}


class PinsCollector(Collector):
    def __init__(self, counts: PinCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        for attribute, (name, text, labels) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for key, value in getattr(self._counts, attribute).items():
                family.add_metric((key,) if isinstance(key, str) else key, value)
            yield family
