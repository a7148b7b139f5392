"""Others use the engines meanwhile: their requests are in the counters, and their prompts in the caches."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt
from homing.core.verify.evidence import Evidence

SHARE = 0.1


def diagnose(evidence: Evidence) -> Finding | None:
    served = sum(c.served for engines in evidence.counted().values() for c in engines.values() if c is not None)
    own = sum(o.answer.good for o in evidence.observations)
    if not own or served - own <= max(2.0, own * SHARE):
        return None
    return doubt(
        "other_load",
        f"The engines served {served:.0f} requests during the runs, of which {own} were these.",
        "Hit rates are those of all requests together, and times depend on what the others do: measure when it is"
        " quiet, or more conversations (--conversations), so that the noise evens out.",
    )
