"""The metrics that vLLM exports and homing reads, with vLLM's names, labels and buckets.

Source: vllm/v1/metrics/loggers.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from homing.sim.engine import Engine
from homing.sim.sequence import FinishReason, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = ("model_name", "engine")
_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
           160.0, 640.0, 2560.0)  # fmt: skip
_ITL_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
              960.0, 1920.0, 7680.0)  # fmt: skip


def _token_buckets(max_model_len: int) -> list[float]:
    """1, 2, 5, 10, ... up to the model's length."""
    steps = (float(mantissa * 10**power) for power in range(12) for mantissa in (1, 2, 5))
    return [step for step in steps if step <= max_model_len]


@dataclass(frozen=True, slots=True)
class EngineCollector(Collector):
    """Reads the engine when it is scraped: nothing to update on the way."""

    engine: Engine
    model: str
    began_s: float
    prefix_caching: bool

    def collect(self) -> Iterator[Metric]:
        engine, counters, shape = self.engine, self.engine.counters, self.engine.cache.shape
        labels = (self.model, "0")
        gauges = {
            "num_requests_running": ("Number of requests in model execution batches.", engine.running),
            "num_requests_waiting": ("Number of requests waiting to be processed.", engine.waiting),
            "kv_cache_usage_perc": ("KV-cache usage. 1 means 100 percent usage.", engine.cache.usage),
        }
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            gauge.add_metric(labels, value)
            yield gauge
        totals = {
            "prefix_cache_queries": ("Prefix cache queries, in queried tokens.", counters.prefix_queries),
            "prefix_cache_hits": ("Prefix cache hits, in cached tokens.", counters.prefix_hits),
            "external_prefix_cache_queries": ("External prefix cache queries, in queried tokens.", 0),
            "external_prefix_cache_hits": ("External prefix cache hits, in cached tokens.", 0),
            "num_preemptions": ("Cumulative number of preemptions from the engine.", counters.preemptions),
        }
        for name, (text, value) in totals.items():
            total = CounterMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            total.add_metric(labels, value)
            yield total
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=("block_size", "num_gpu_blocks", "enable_prefix_caching", "engine"),
        )
        info.add_metric((str(shape.block_size), str(shape.num_blocks), str(self.prefix_caching), "0"), 1)
        yield info
        began = "Start time of the process since unix epoch in seconds."
        yield GaugeMetricFamily("process_start_time_seconds", began, self.began_s)


class Metrics:
    """One a process, with a registry of its own."""

    def __init__(
        self, engine: Engine, model: str, max_model_len: int, began_s: float = 0.0, *, prefix_caching: bool = True
    ) -> None:
        """`began_s`: when this life began, since 1970."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(EngineCollector(engine, model, began_s, prefix_caching))
        self._model = model
        self._ttft = self._histogram("time_to_first_token_seconds", "Time to first token in seconds.", _TTFT_S)
        self._itl = self._histogram("inter_token_latency_seconds", "Inter-token latency in seconds.", _ITL_S)
        self._queue = self._histogram("request_queue_time_seconds", "Time spent in WAITING phase.", _REQUEST_S)
        self._prefill = self._histogram("request_prefill_time_seconds", "Time spent in PREFILL phase.", _REQUEST_S)
        self._e2e = self._histogram("e2e_request_latency_seconds", "End to end request latency in seconds.", _REQUEST_S)
        buckets = _token_buckets(max_model_len)
        self._prompt_sizes = self._histogram("request_prompt_tokens", "Number of prefill tokens processed.", buckets)
        self._output_sizes = self._histogram("request_generation_tokens", "Number of generation tokens.", buckets)
        self._prompt_tokens = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._output_tokens = self._counter("generation_tokens", "Number of generation tokens processed.")
        self._success = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            (*_LABELS, "finished_reason"),
            registry=self._registry,
        )
        for reason in FinishReason:
            self._success.labels(model, "0", reason.value)

    def token(self, sequence: Sequence) -> None:
        self._output_tokens.inc()
        if sequence.itl_s is not None:
            self._itl.observe(sequence.itl_s)
        elif sequence.first_token_s is not None and sequence.scheduled_s is not None:
            self._prompt_tokens.inc(sequence.prompt_tokens)
            self._ttft.observe(sequence.first_token_s - sequence.arrived_s)
            self._queue.observe(sequence.scheduled_s - sequence.arrived_s)
            self._prefill.observe(sequence.first_token_s - sequence.scheduled_s)

    def finished(self, sequence: Sequence, now_s: float) -> None:
        if sequence.finish_reason is None:
            return
        end_s = None if sequence.finish_reason is FinishReason.ABORT else sequence.last_token_s
        end_s = now_s if end_s is None else end_s
        self._success.labels(self._model, "0", sequence.finish_reason.value).inc()
        self._e2e.observe(end_s - sequence.arrived_s)
        self._prompt_sizes.observe(sequence.prompt_tokens)
        self._output_sizes.observe(sequence.output_tokens)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, _LABELS, registry=self._registry, buckets=tuple(buckets))
        return histogram.labels(self._model, "0")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, _LABELS, registry=self._registry).labels(self._model, "0")
