"""The session's id does not arrive: the gateway answers with another one than was sent."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence, hit_rate
from homing.core.verify.plan import Run

MANY = 0.5

NEAR = 0.1
"""Turns that find all but so much of what can be found are at home."""


def diagnose(evidence: Evidence) -> Finding | None:
    sent = [o for o in evidence.observations if o.run is Run.AFFINITY and o.sent is not None and o.answer.good]
    if not evidence.issues or not sent:
        return None
    others = sum(o.answer.session is not None and o.answer.session != o.sent for o in sent)
    none = sum(o.answer.session is None for o in sent)
    if others + none < len(sent) * MANY:
        return None
    what = "another one" if others >= none else "none"
    seen = (
        f"{others + none} of {len(sent)} turns that carried an id in {evidence.header} were answered with {what}: the"
        " gateway did not get it."
    )
    change = (
        f"A hop between here and the gateway drops or replaces the header {evidence.header}: let it pass there, in"
        " both directions, and measure again at the gateway's own port to be sure."
    )
    rates = [hit_rate(evidence, run) for run in Run]
    if all(rate is not None and rate > evidence.reusable() - NEAR for rate in rates):
        seen += " Turns of both runs come home by the history that they carry: not while no picker runs."
    return fault("id_lost", seen, change)
