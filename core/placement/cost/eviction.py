"""What will not fit: the share of the context that the cache there cannot keep, prefilled again with every turn."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There

USABLE = 0.9
"""Of a cache: the rest goes to the answers and to blocks that are not full."""


def tokens(asked: Asked, there: There) -> float:
    wanted = there.working_set + asked.tokens
    usable = USABLE * there.capacity
    if wanted <= usable:
        return 0.0
    return asked.settings.eviction_factor * asked.further_turns * asked.tokens * (1.0 - usable / wanted)
