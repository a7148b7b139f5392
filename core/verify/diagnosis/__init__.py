"""The classic failures, one module each: evidence in, a finding or none out. In the order in which a request meets
them: what comes first explains what comes later."""

from __future__ import annotations

from collections.abc import Callable

from homing.core.verify.diagnosis import (
    caching_off,
    changed_behind,
    changing_front,
    failing,
    id_lost,
    no_choices,
    no_counters,
    one_replica,
    other_load,
    restarted,
    short_prompts,
    small_caches,
    unauthorized,
    unreachable,
    unstreamed,
    wrong_key,
)
from homing.core.verify.diagnosis.finding import Finding, Weight
from homing.core.verify.evidence import Evidence

Diagnosis = Callable[[Evidence], Finding | None]

DIAGNOSES: tuple[Diagnosis, ...] = (
    unreachable.diagnose,
    unauthorized.diagnose,
    no_choices.diagnose,
    failing.diagnose,
    id_lost.diagnose,
    wrong_key.diagnose,
    one_replica.diagnose,
    caching_off.diagnose,
    changing_front.diagnose,
    short_prompts.diagnose,
    small_caches.diagnose,
    other_load.diagnose,
    restarted.diagnose,
    changed_behind.diagnose,
    no_counters.diagnose,
    unstreamed.diagnose,
)


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    found = (diagnosis(evidence) for diagnosis in DIAGNOSES)
    return tuple(finding for finding in found if finding is not None)


__all__ = ["Finding", "Weight", "diagnose"]
