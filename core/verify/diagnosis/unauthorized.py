"""401 and 403."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence
from homing.core.verify.observed import Failure

SIGNED = "session id"


def diagnose(evidence: Evidence) -> Finding | None:
    refused = [answer for answer in evidence.failed(Failure.STATUS) if answer.status in (401, 403)]
    if not refused:
        return None
    words = f": {refused[0].detail}" if refused[0].detail else ""
    seen = f"{len(refused)} requests are answered with {refused[0].status}{words}."
    if SIGNED in refused[0].detail:
        change = "The gateway refuses the session's id (homing: `sessions.signed`): no hop may change it on its way."
    elif evidence.key_given:
        change = (
            "The key of --api-key is not one that the engines, or the gateway, know: vLLM's is that of its --api-key"
            " or VLLM_API_KEY. If it is right, look for a hop that drops the header Authorization."
        )
    else:
        change = "Engine or gateway ask for a key: put it into the environment, and say --api-key env:NAME."
    return fault("unauthorized", seen, change)
