"""What a picker knows of prefix caches, and what it is told, in Prometheus' form."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from homing.ext_proc.prefixes import Prefixes


class PrefixCollector(Collector):
    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes

    def collect(self) -> Iterable[Metric]:
        prefixes = self._prefixes
        counts = prefixes.kv_counts
        batches = CounterMetricFamily("homing_kv_batches", "Batches of KV events", labels=("pool", "outcome"))
        for (pool_id, fate), number in counts.batches.items():
            batches.add_metric((pool_id, fate), number)
        learned = CounterMetricFamily("homing_prompts_learned", "Prompts tokenized", labels=("pool", "outcome"))
        for (pool_id, outcome), number in prefixes.learner.outcomes.items():
            learned.add_metric((pool_id, outcome), number)
        yield from (batches, learned)
        yield _by_pool("homing_kv_passed_over", "KV events of a kind that is not followed", counts.passed_over)
        yield _by_pool("homing_kv_restarts", "Engines that began anew", counts.restarts)
        yield from self._gauges()

    def _gauges(self) -> Iterable[Metric]:
        labels = ("pool", "replica")
        blocks = GaugeMetricFamily("homing_prefix_blocks", "Blocks that a replica says it holds", labels=labels)
        complete = GaugeMetricFamily("homing_prefix_complete", "Whether all of them are known", labels=labels)
        for source in self._prefixes.sources:
            held = self._prefixes.index.pool(source.place[0]).blocks
            blocks.add_metric(source.place, held.blocks(source.place[1]))
            complete.add_metric(source.place, held.complete(source.place[1]))
        marks = GaugeMetricFamily("homing_prefix_marks", "Parts of prompts remembered as sent", labels=("pool",))
        ignored = CounterMetricFamily(
            "homing_prefix_blocks_ignored", "Blocks that could not be noted", labels=("pool",)
        )
        for pool_id, pool in self._prefixes.index.pools.items():
            marks.add_metric((pool_id,), len(pool.placed))
            ignored.add_metric((pool_id,), pool.blocks.ignored)
        yield from (blocks, complete, marks, ignored)


def _by_pool(name: str, text: str, counts: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=("pool",))
    for pool_id, number in counts.items():
        family.add_metric((pool_id,), number)
    return family
