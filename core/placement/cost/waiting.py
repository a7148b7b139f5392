"""What waits there: the request's first token comes after theirs."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    return there.waiting
