"""The contexts that are decoded there: every token of them is read at each step, and holds memory that a prompt which
comes may have to wait for. In-flight requests alone say little of it: contexts differ a hundredfold."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    return asked.settings.context_factor * there.context
