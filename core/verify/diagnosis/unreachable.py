"""Connection refused, a name that does not resolve, nothing within the time allowed."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt, fault
from homing.core.verify.evidence import Evidence
from homing.core.verify.observed import TLS, Failure


def diagnose(evidence: Evidence) -> Finding | None:
    lost = evidence.failed(Failure.UNREACHABLE, Failure.BROKEN, Failure.LATE)
    if not lost:
        return None
    seen = f"{len(lost)} requests to {evidence.url} got no answer: {lost[0].detail}."
    if any(answer.good for answer in evidence.answers()):
        change = (
            "The others were answered: look for a hop that drops connections, or for a time limit that is too short."
        )
        return doubt("unreachable", seen, change)
    if lost[0].detail.startswith(TLS):
        change = (
            "Where the certificate is of an authority of your own, say --ca FILE, and give the name that it bears in"
            " the URL; where the port speaks no TLS, the URL begins with http:."
        )
        return fault("unreachable", seen, change)
    change = (
        "Is the gateway running, and is this its data port (homing: `listen` in the file, by default 8080)? From"
        " another machine it must not listen on loopback only; over TLS the URL begins with https."
    )
    return fault("unreachable", seen, change)
