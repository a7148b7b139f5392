"""What became of a request, as Envoy's access log tells it: off the hot path, in batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished request. `replica_id` is who really served, after retries; empty if nobody did.

    Times in seconds; `ttft_s` is the time to the first byte from the replica. `ref` names the decision it belongs to.
    """

    pool_id: str
    replica_id: str
    status: int
    ttft_s: float | None
    duration_s: float
    attempts: int
    decision: str
    ref: str
