"""What would have to be prefilled there: the prompt without what its cache holds. It delays whoever waits behind it."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    return (asked.tokens - there.cached) * (1.0 + asked.settings.delay_factor * asked.crowd)
