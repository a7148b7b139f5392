"""What is known of sessions, for people to see: who lives where. Ids are never in it, only their keyed hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from homing.core.placement.home import Placer
from homing.core.placement.pools import CompiledPool
from homing.core.session import SessionKey


class Known(msgspec.Struct, frozen=True):
    """One session in one pool. `session` is the keyed hash of its id, in hexadecimal: pickers that share no secret
    have one each for the same id. `pinned`: it lives elsewhere than its hash alone would say; None where the id, and so
    its hash, is not at hand."""

    session: str
    pool: str
    replica: str
    idle_s: float
    pinned: bool | None = None


class KnownSessions(msgspec.Struct, frozen=True):
    """`total` is the size of the picker's whole table, responses and other pools' sessions included."""

    total: int
    sessions: tuple[Known, ...]


def look_up(placer: Placer, pools: Iterable[CompiledPool], key: SessionKey, now: float) -> tuple[Known, ...]:
    """The session in every one of `pools` that knows it."""
    found = []
    for pool in pools:
        digest = placer.digest(pool.pool.id, key)
        if (home := placer.homes.get(digest, now)) is not None:
            owner = pool.owner(key.text)
            pinned = owner is None or owner.id != home
            found.append(Known(digest.hex(), pool.pool.id, home, _idle_s(placer, digest, now), pinned))
    return tuple(found)


def listed(placer: Placer, pools: Iterable[CompiledPool], limit: int, now: float) -> KnownSessions:
    """Some sessions of `pools`, at most `limit`."""
    return KnownSessions(len(placer.homes), tuple(islice(_all(placer, pools, now), limit)))


def _all(placer: Placer, pools: Iterable[CompiledPool], now: float) -> Iterator[Known]:
    for digest, pool_id, home in placer.inhabitants(pools, now):
        yield Known(digest.hex(), pool_id, home, _idle_s(placer, digest, now))


def _idle_s(placer: Placer, digest: bytes, now: float) -> float:
    size = placer.homes.size(digest)
    return round(max(0.0, now - size[0]), 3) if size is not None else 0.0
