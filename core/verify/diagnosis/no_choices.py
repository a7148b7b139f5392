"""Answers with 200 that are none of OpenAI's API."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence
from homing.core.verify.observed import Failure


def diagnose(evidence: Evidence) -> Finding | None:
    odd = evidence.failed(Failure.NO_CHOICES)
    if not odd:
        return None
    return fault(
        "no_choices",
        f"{len(odd)} requests are answered with 200 and a body without `choices`: {odd[0].detail}.",
        "The URL leads to something else than an OpenAI API: another port, a page of a proxy's, a path that misses"
        " or doubles /v1; or the engine wraps its errors in a 200. Ask it with curl, and look at the body.",
    )
