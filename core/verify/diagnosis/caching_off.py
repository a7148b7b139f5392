"""Engines that keep no prefix, and say so."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence


def diagnose(evidence: Evidence) -> Finding | None:
    engines = evidence.engines()
    said = [name for name, counters in engines.items() if counters is not None and counters.caching is False]
    silent = [
        name
        for name in engines
        if name not in said
        and any(
            c is not None and c.served > 0 and c.queried == 0
            for c in (counted.get(name) for counted in evidence.counted().values())
        )
    ]
    if not said and not silent:
        return None
    words = []
    if said:
        words.append(f"{', '.join(said)}: `vllm:cache_config_info` has enable_prefix_caching=False.")
    if silent:
        words.append(f"{', '.join(silent)}: requests were served, and none looked anything up in the prefix cache.")
    return fault(
        "caching_off",
        " ".join(words),
        "Start vLLM with --enable-prefix-caching, or without --no-enable-prefix-caching: V1 engines have it on by"
        " default, but not for every kind of model; the log of its start says so.",
    )
