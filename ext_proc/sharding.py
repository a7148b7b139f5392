"""Which picker Envoy asks about a session, where it shares the sessions out among several (envoy/pickers.yaml.j2)."""

from __future__ import annotations

from collections.abc import Sequence

from homing.core.hashing import Maglev
from homing.core.placement.minting import Shard


def shard(pickers: Sequence[str], own: str) -> Shard | None:
    """`pickers`: where each listens; Envoy hashes their addresses. None for one that is alone, and for one that is not
    among them, as a standby is."""
    if len(pickers) < 2 or own not in pickers:
        return None
    return Shard(Maglev([(address.removeprefix("unix:"), 1) for address in pickers]), pickers.index(own))
