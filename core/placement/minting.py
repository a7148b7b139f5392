"""Ids that need no memory: a session's id is chosen so that its hash is the replica we want."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from homing.core.hashing import Table

MAX_TRIES = 1_000
"""One try is about a microsecond. With 8 replicas 8 are needed on average, and a thousand never miss."""

SHARD_TRIES = 200
"""Enough for 8 replicas and 4 pickers in all but two cases of a thousand."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Pickers among which Envoy divides the sessions by the hash of the key, and which of them this one is."""

    table: Table
    picker: int


def mint(
    base: bytes,
    prefix: bytes,
    table: Table,
    host: int,
    max_tries: int = MAX_TRIES,
    shard: Shard | None = None,
    finish: Callable[[bytes], bytes] | None = None,
) -> bytes | None:
    """An id that starts with `base` and for which `table.owner(prefix + id) == host`; None after `max_tries`.

    `base` is what makes the id unguessable; the counter after it adds nothing to that. With a `shard` the id fits the
    picker too, if one is found in SHARD_TRIES: tries multiply, and the replica is what matters.
    `finish` makes the id that is issued of each try (it signs it).
    """
    if shard is None and finish is None:
        begun = prefix + base + b"-"
        for counter in range(max_tries):
            if table.owner(begun + b"%x" % counter) == host:
                return b"%b-%x" % (base, counter)
        return None
    fits_replica: bytes | None = None
    for counter in range(max_tries):
        candidate = b"%s-%x" % (base, counter)
        if finish is not None:
            candidate = finish(candidate)
        key = prefix + candidate
        if table.owner(key) == host:
            if shard is None or shard.table.owner(key) == shard.picker:
                return candidate
            fits_replica = fits_replica or candidate
        if fits_replica is not None and counter >= SHARD_TRIES:
            break
    return fits_replica


_MINTED = re.compile(
    rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9a-f]{1,3}(?:-[0-9a-f]{1,12}-[0-9a-f]{32})?", re.IGNORECASE
)


def looks_minted(session: bytes) -> bool:
    """Whether an id has the form of ours (%UNIQUE_ID%, a counter, perhaps a signature): then its hash is its home,
    whatever has been forgotten. One that a client made to look so goes where Envoy alone would send it: no harm."""
    return _MINTED.fullmatch(session) is not None
