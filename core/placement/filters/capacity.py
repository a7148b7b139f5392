"""A replica with as many requests in flight as it may have takes no new sessions."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def allows(asked: Asked, there: There) -> bool:
    return not 0 < asked.settings.max_in_flight <= there.in_flight
