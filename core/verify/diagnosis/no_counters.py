"""Nobody tells what was found in the caches."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt
from homing.core.verify.evidence import Evidence


def diagnose(evidence: Evidence) -> Finding | None:
    engines = evidence.engines()
    silent = [name for name, counters in engines.items() if counters is None or counters.queried is None]
    if engines and not silent:
        return None
    if not engines and not any(o.answer.good for o in evidence.observations):
        return None
    if not engines:
        seen = "No engine was named, so nobody was asked how much of the prompts was found."
        change = "Say where the engines are: --engine URL for each, or --api URL, or -c FILE of homing."
    else:
        seen = f"{', '.join(silent)}: no `vllm:prefix_cache_queries_total` under /metrics."
        change = (
            "Is it a vLLM engine's own port, and reachable from here? --disable-log-stats switches its counters off;"
            " other engines count under other names."
        )
    return doubt("no_counters", seen, change)
