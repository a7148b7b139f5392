"""Answers that come all at once: the time to the first token cannot be seen."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt
from homing.core.verify.evidence import Evidence

MANY = 0.5


def diagnose(evidence: Evidence) -> Finding | None:
    good = [answer for answer in evidence.answers() if answer.good]
    whole = [answer for answer in good if not answer.streamed]
    if not whole or len(whole) < len(good) * MANY:
        return None
    return doubt(
        "unstreamed",
        f"{len(whole)} of {len(good)} answers came all at once, though a stream was asked for: what is called TTFT"
        " here is the time of the whole answer.",
        "A hop gathers answers before it passes them on (NGINX: proxy_buffering off), or the engine does not stream.",
    )
