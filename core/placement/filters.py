"""Who may take a request. A filter looks at one replica and knows nothing of the others."""

from __future__ import annotations

from homing.core.fleet import Replica


def serves_its_own(replica: Replica) -> bool:
    """Sessions that live there go on there, also while it drains."""
    return replica.in_hash


def takes_new(replica: Replica) -> bool:
    """New sessions go only where they can stay."""
    return replica.takes_new_sessions
