"""What a new session brings there over its life, next to those that are there: further turns, each with its tokens.

Without it a small shared prefix is a magnet that piles long sessions onto one replica.
"""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    if not asked.begins:
        return 0.0
    each = asked.settings.spread_factor * asked.further_turns * asked.later_uncached
    return each * (there.sessions - asked.fewest_sessions * there.speed)
