"""A LoRA adapter is served where it is loaded. A replica that lists no adapters has all of its pool's."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def allows(asked: Asked, there: There) -> bool:
    return asked.adapter is None or not there.replica.adapters or asked.adapter in there.replica.adapters
