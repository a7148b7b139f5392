"""A draining replica keeps its own sessions and takes no others."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def allows(asked: Asked, there: There) -> bool:
    return there.replica.takes_new_sessions
