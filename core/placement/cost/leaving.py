"""What a move throws away: the tokens cached at home, and more of it the more wait, since a move evicts others, who
then move too. Greedy cost without this thrashes."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    if asked.home is None or there.replica.id == asked.home:
        return 0.0
    s = asked.settings
    return s.leave_tokens + s.leave_factor * asked.home_cached * (1.0 + s.crowd_factor * asked.crowd)
