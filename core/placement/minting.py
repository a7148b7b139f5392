"""Ids that need no memory: a session's id is chosen so that its hash is the replica we want."""

from __future__ import annotations

from homing.core.hashing import Table

MAX_TRIES = 1_000
"""One try is about a microsecond. With 8 replicas 8 are needed on average, and a thousand never miss."""


def mint(base: bytes, prefix: bytes, table: Table, host: int, max_tries: int = MAX_TRIES) -> bytes | None:
    """An id that starts with `base` and for which `table.owner(prefix + id) == host`; None after `max_tries`.

    `base` is what makes the id unguessable; the counter after it adds nothing to that.
    """
    for counter in range(max_tries):
        candidate = b"%s-%x" % (base, counter)
        if table.owner(prefix + candidate) == host:
            return candidate
    return None
