"""A hop before us may allow only some addresses (the endpoint picker protocol's subset hint)."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def allows(asked: Asked, there: There) -> bool:
    return asked.subset is None or there.replica.address in asked.subset
