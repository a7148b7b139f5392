"""What became of a request, as Envoy's access log tells it: off the hot path, in batches, a line for each."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True, gc=False):
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

    @classmethod
    def of_line(cls, line: str) -> Outcome:
        """The parts are named in envoy/hcm.yaml.j2, in this order; "-" is none. Raises ValueError for another line."""
        pool, replica, status, first, duration, attempts, decision, ref = line.split("\t")
        return cls(
            "" if pool == "-" else pool,
            "" if replica == "-" else replica,
            int(status),
            None if first == "-" else int(first) / 1e6,
            0.0 if duration == "-" else int(duration) / 1e6,
            0 if attempts == "-" else int(attempts),
            "" if decision == "-" else decision,
            "" if ref == "-" else ref,
        )
