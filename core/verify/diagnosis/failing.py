"""Any other refusal: an unknown model, a full queue, no healthy replica."""

from __future__ import annotations

from homing.core.verify.diagnosis.finding import Finding, doubt, fault
from homing.core.verify.evidence import Evidence
from homing.core.verify.observed import Failure

_ELSEWHERE = "The URL leads elsewhere, and is not followed: ask for it with curl -i, and give the one in `location`."

_CHANGES = {
    **dict.fromkeys((301, 302, 303, 307, 308), _ELSEWHERE),
    400: "The request is refused: a template that takes no system message, a prompt that is too long, an unknown"
    " field.",
    404: "Model or path are not known: GET /v1/models names the models (--model), --endpoint completions is for models"
    " without a chat template.",
    413: "A hop limits the size of bodies: long conversations need more (NGINX: client_max_body_size).",
    429: "A limit of requests is reached: measure with less --concurrency.",
    503: "The gateway finds no replica fit to serve: are they up, and do their health checks pass?",
}


def diagnose(evidence: Evidence) -> Finding | None:
    refused = [answer for answer in evidence.failed(Failure.STATUS) if answer.status not in (401, 403)]
    if not refused:
        return None
    status = refused[0].status
    words = f": {refused[0].detail}" if refused[0].detail else ""
    seen = f"{len(refused)} requests are answered with {status}{words}."
    change = _CHANGES.get(status, "The log of the gateway, or of the engine behind it, says more.")
    return (doubt if any(answer.good for answer in evidence.answers()) else fault)("failing", seen, change)
