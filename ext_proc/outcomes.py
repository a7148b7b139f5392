"""What became of a request, as Envoy's access log tells it: off the hot path, in batches, a line for each."""

from __future__ import annotations

import msgspec

STREAM = "text/event-stream"


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """One finished request. `replica_id` is who really served, after retries; empty if nobody did.

    Times in seconds; `ttft_s` is the time to the first byte of the replica's answer, its headers apart: an engine sends
    those of a stream at once. `ref` names the decision it belongs to. `streamed`: that byte came with the first token,
    not with the last.
    """

    pool_id: str
    replica_id: str
    status: int
    ttft_s: float | None
    duration_s: float
    attempts: int
    decision: str
    ref: str
    streamed: bool = False

    @classmethod
    def of_line(cls, line: str) -> Outcome:
        """The parts are named in envoy/hcm.yaml.j2, in this order; "-" is none. An Envoy that a former
        version configured does not tell the kind of answer. Raises ValueError for another line."""
        pool, replica, status, first, duration, attempts, decision, ref, *kind = line.split("\t")
        return cls(
            "" if pool == "-" else pool,
            "" if replica == "-" else replica,
            int(status),
            None if first == "-" else int(first) / 1e6,
            0.0 if duration == "-" else int(duration) / 1e6,
            0 if attempts == "-" else int(attempts),
            "" if decision == "-" else decision,
            "" if ref == "-" else ref,
            bool(kind) and kind[0].startswith(STREAM),
        )
