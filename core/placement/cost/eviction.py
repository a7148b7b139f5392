"""What will not fit: the share of the context that the cache there cannot keep, prefilled again with every turn."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There

USABLE = 0.9
"""Of a cache: the rest goes to the answers and to blocks that are not full."""


def fits(asked: Asked, there: There) -> bool:
    """Whether the cache there has room for the context, beside those that are active."""
    return there.working_set + asked.tokens <= USABLE * there.capacity


def tokens(asked: Asked, there: There) -> float:
    if fits(asked, there):
        return 0.0
    wanted = there.working_set + asked.tokens
    usable = USABLE * there.capacity
    return asked.settings.eviction_factor * asked.further_turns * asked.tokens * (1.0 - usable / wanted)
