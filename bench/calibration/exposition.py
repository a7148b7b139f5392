"""Metric families with their labels, from Prometheus text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "vllm:"
COUNTERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "num_preemptions_total",
        "request_success_total",
        "time_to_first_token_seconds_count",
        "inter_token_latency_seconds_count",
        "request_prompt_tokens_sum",
        "request_generation_tokens_sum",
    )
)
_OF_THE_ENGINE = {"engine", "model_name"}
_OF_THE_FORM = {"le"}  # a histogram's own label
_CREATED = "_created"  # which the client library adds


@dataclass(frozen=True, slots=True)
class Family:
    kind: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`unknown`: the sim has them and vLLM has not. `other`: another kind, or other labels. `missing`: vLLM's alone."""

    same: tuple[str, ...]
    unknown: tuple[str, ...]
    other: tuple[str, ...]
    missing: tuple[str, ...]


def families(text: str) -> dict[str, Family]:
    """vLLM's own ones, those with samples."""
    return {
        family.name: Family(
            family.type, frozenset(label for sample in family.samples for label in sample.labels) - _OF_THE_FORM
        )
        for family in text_string_to_metric_families(text)
        if family.name.startswith(PREFIX) and family.samples and not family.name.endswith(_CREATED)
    }


def counters(text: str) -> dict[str, float]:
    """Those of `COUNTERS`, by name and by the labels that say more than which engine it is; zeros left out."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in COUNTERS and sample.value:
                labels = sorted(value for name, value in sample.labels.items() if name not in _OF_THE_ENGINE)
                found[" ".join((sample.name, *labels))] = sample.value
    return found


def compare(vllm: Mapping[str, Family], sim: Mapping[str, Family], subsets: frozenset[str]) -> Comparison:
    """`subsets`: families that carry settings as labels, of which the sim may have fewer."""
    same: list[str] = []
    other: list[str] = []
    for name in sorted(vllm.keys() & sim.keys()):
        there, here = vllm[name], sim[name]
        alike = here.labels <= there.labels if name in subsets else here.labels == there.labels
        (same if alike and here.kind == there.kind else other).append(name)
    return Comparison(
        tuple(same),
        tuple(sorted(sim.keys() - vllm.keys())),
        tuple(f"{n}: {_text(vllm[n])} in vLLM, {_text(sim[n])} in the sim" for n in other),
        tuple(sorted(vllm.keys() - sim.keys())),
    )


def _text(family: Family) -> str:
    return f"{family.kind}({', '.join(sorted(family.labels))})"
