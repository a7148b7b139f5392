"""What one of several control services may decide, by what it last heard of the store they share. Pure.

Who holds the lease leads. It trusts its lease for less time than the store keeps it, so that a leader that was frozen,
or whose store is away, has ended before another begins; and what it writes is taken only while the store has its lease,
so that clocks that run apart do no harm either. Who hears nothing of the store goes on by itself, carefully.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from homing.core.fleet import Event, Fleet, HealthChanged

LEASE_S = 3.0
"""So long the store keeps a lease that is not renewed."""

TRUSTED_S = 2.0
"""So long its holder trusts it, from the moment when it asked."""

ALONE_AFTER_S = 5.0
"""So long after the store was heard last a control service that asks in vain decides by itself. Longer than LEASE_S:
had it led, nobody does now, or somebody else who can reach the store."""


class Role(StrEnum):
    LEADING = "leading"  # decides for all
    FOLLOWING = "following"  # passes on what the leader decides
    ALONE = "alone"  # the store is away: decides for those that are connected here


@dataclass(frozen=True, slots=True)
class Standing:
    """Times by a monotonic clock. `heard_s`: when the store was last asked with an answer, or the start; `missed_s`:
    when it was last asked without one; `token`: of the lease that is held, 0 for none."""

    heard_s: float
    missed_s: float = float("-inf")
    token: int = 0

    def heard(self, asked_s: float, token: int) -> Standing:
        """The store has answered a question of `asked_s`; `token` of our lease there, 0 if it has none of ours."""
        return replace(self, heard_s=asked_s, token=token)

    def missed(self, asked_s: float) -> Standing:
        """The store has not answered a question of `asked_s`."""
        return replace(self, missed_s=asked_s)

    def role(self, now_s: float) -> Role:
        """A process that was frozen has not asked, so it is not alone before it has."""
        if self.token and now_s - self.heard_s < TRUSTED_S:
            return Role.LEADING
        return Role.ALONE if self.missed_s - self.heard_s >= ALONE_AFTER_S else Role.FOLLOWING


def permitted(role: Role, fleet: Fleet, event: Event) -> bool:
    """Whether `event` is for a control service in this role to say. Alone it takes no more than half of a pool away: if
    it finds more dead, its own way to them is as likely to be."""
    if role is not Role.ALONE or not isinstance(event, HealthChanged) or event.healthy:
        return role is not Role.FOLLOWING
    pool = fleet.pool(event.pool_id)
    if pool is None:
        return True
    healthy = sum(r.healthy for r in pool.replicas if r.id != event.replica_id)
    return 2 * healthy >= len(pool.replicas)
