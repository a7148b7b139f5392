"""When probes become a verdict: how many in a row it takes to change one's mind. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from homing.core.config import HealthCheck


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is thought of a replica, and the run of equal probes that stands behind it or against it."""

    healthy: bool
    settled: bool = False  # whether probes, and not only what was known before them, say so
    run_ok: bool = False
    run_length: int = 0

    def after(self, ok: bool, check: HealthCheck) -> Verdict:
        """The verdict after one more probe."""
        length = self.run_length + 1 if ok == self.run_ok else 1
        enough = length >= (check.healthy_threshold if ok else check.unhealthy_threshold)
        return Verdict(ok if enough else self.healthy, self.settled or enough, ok, length)

    def tells_more_than(self, before: Verdict) -> bool:
        """Whether others must hear of it."""
        return self.settled and (not before.settled or self.healthy != before.healthy)
