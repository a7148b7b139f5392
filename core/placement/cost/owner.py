"""What it costs to be elsewhere than where Envoy would go alone: an exception to remember, and to lose with the
pickers. Only for an id that the client chose: one of ours is made to fit wherever the session begins."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    return 0.0 if asked.owner is None or there.replica.id == asked.owner else asked.settings.hash_preference_tokens
