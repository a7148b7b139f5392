"""Who is served there already: each request in flight slows the others' decoding a little. It decides between replicas
where nothing waits."""

from __future__ import annotations

from homing.core.placement.asked import Asked, There


def tokens(asked: Asked, there: There) -> float:
    return asked.settings.in_flight_tokens * there.in_flight
