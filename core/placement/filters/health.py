"""Dead and joining replicas serve nobody."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def allows(asked: Asked, there: There) -> bool:
    return there.replica.in_hash
