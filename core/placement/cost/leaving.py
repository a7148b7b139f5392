"""What a move throws away: the tokens cached at home, and more of it the more wait. Where the cache has no room for
them it evicts others, who then move too: much dearer there, for greedy cost without that thrashes."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There
from homing.core.placement.cost import eviction


def tokens(asked: Asked, there: There) -> float:
    if asked.home is None or there.replica.id == asked.home:
        return 0.0
    s = asked.settings
    factor = s.roomy_leave_factor if eviction.fits(asked, there) else s.leave_factor
    return s.leave_tokens + factor * asked.home_cached * (1.0 + s.crowd_factor * asked.crowd)
