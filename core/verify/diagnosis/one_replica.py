"""Nothing to choose from."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence


def diagnose(evidence: Evidence) -> Finding | None:
    engines, replicas = evidence.engines(), evidence.replicas()
    if len(replicas) > 1 or len(engines) > 1 or not (replicas or engines):
        return None
    if any(counters is not None and counters.ranks > 1 for counters in engines.values()):
        return None  # one address, and behind it several caches to choose from
    (name,) = replicas or engines
    return fault(
        "one_replica",
        f"Only one replica is known, {name}: every turn goes there, with affinity and without.",
        "Affinity is for several replicas. If there are more, name them all (--engine URL each), and see why the"
        " gateway sends them nothing.",
    )
