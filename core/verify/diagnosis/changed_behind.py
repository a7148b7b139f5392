"""Turns come home to caches with room, and find little: what the engine gets is not what was sent."""

from __future__ import annotations

from homing.core.verify.diagnosis import (
    caching_off,
    id_lost,
    other_load,
    restarted,
    short_prompts,
    small_caches,
    wrong_key,
)
from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import MISSED, Evidence

EXPLAINED = (id_lost, wrong_key, caching_off, short_prompts, small_caches, other_load, restarted)
"""Any of these is reason enough."""


def diagnose(evidence: Evidence) -> Finding | None:
    missed = evidence.missed()
    if missed is None or missed < MISSED or len(evidence.probes.homes) != 1 or len(evidence.replicas()) < 2:
        return None
    if any(each.diagnose(evidence) is not None for each in EXPLAINED):
        return None
    best = evidence.reusable()
    return fault(
        "changed_behind",
        f"Turns find {best - missed:.0%} of what they send where {best:.0%} was sent before, though a session stays"
        " at one replica, prefix caching is on, and there is room.",
        "Something changes prompts behind here: a chat template that writes the time of day, a gateway or proxy that"
        " puts text or a `cache_salt` of its own in front. Compare the prompts of two turns in the engine: POST"
        " /tokenize with the same messages, twice. Or sessions were moved meanwhile: a restart, a scale-up.",
    )
