"""An engine that began anew meanwhile: its cache is empty, and what it counted is lost."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt
from homing.core.verify.evidence import Evidence


def diagnose(evidence: Evidence) -> Finding | None:
    anew = {
        name
        for before, after in evidence.states.values()
        for name, counters in after.items()
        if counters is not None and (was := before.get(name)) is not None and counters.restarted(was)
    }
    if not anew:
        return None
    return doubt(
        "restarted",
        f"{', '.join(sorted(anew))}: counts less than before, so the engine was started anew during the measurement.",
        "Its cache was empty then, and what it had counted is missing from the hit rates: measure again when nothing is"
        " deployed; if nobody restarted it, see why it ended.",
    )
