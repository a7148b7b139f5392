"""Where sessions live: the home of every active session, bounded in number and in idle time.

The hash is the default home, so this table is an optimisation that may be lost: a session that is not in it goes to
its hash's owner. An entry whose home differs from what the hash says is a pin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

KEY_ID_BYTES = 256
"""So much of an id is in the key that Envoy hashes. Longer ids are counted as odd; two that begin alike have the same
default home, and are two sessions all the same."""

TAG_BYTES = 4


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One conversation of one tenant. `text` is Envoy's x-homing-key, the input of its hash."""

    tenant: bytes
    session: bytes
    text: bytes

    @property
    def prefix(self) -> bytes:
        """The part of `text` before the session's id."""
        return self.text[: len(self.text) - len(self.session[:KEY_ID_BYTES])]

    def named(self, session: bytes) -> SessionKey:
        """The same tenant's key for another id."""
        return SessionKey(self.tenant, session, self.prefix + session[:KEY_ID_BYTES])

    def digest(self, pool_id: str, secret: bytes) -> bytes:
        """The table's key, 16 bytes. NUL cannot occur in a header, so no two (pool, tenant, session) share an input.

        Keyed (RFC 7693; `secret` has up to 64 bytes), since it leaves the process as x-homing-ref: no client can aim at
        another's entry, and nobody can tell the session from it. It begins with the pool's tag."""
        identity = b"\0".join((pool_id.encode(), self.tenant, self.session))
        return pool_tag(pool_id, secret) + blake2b(identity, key=secret, digest_size=12).digest()


def pool_tag(pool_id: str, secret: bytes) -> bytes:
    """How the digests of a pool's sessions begin, so that they can be counted."""
    return blake2b(pool_id.encode(), key=secret, digest_size=TAG_BYTES).digest()


class Homes:
    """Session digest -> replica id, with a sliding idle time. Never refuses: the longest idle leaves first.

    Times are seconds of any monotonic clock, passed in. A dict keeps insertion order, so its order is the order of use.
    """

    __slots__ = ("_entries", "_max", "_ttl_s", "evicted")

    def __init__(self, ttl_s: float, max_sessions: int) -> None:
        self.limit(ttl_s, max_sessions)
        self._entries: dict[bytes, tuple[str, float, str | None, int]] = {}
        self.evicted = 0
        """Sessions that left before their idle time was over."""

    def limit(self, ttl_s: float, max_sessions: int) -> None:
        """New bounds. What is too many leaves one by one, with each session that comes."""
        self._ttl_s = ttl_s
        self._max = max_sessions

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes, now: float) -> str | None:
        """The home, if the session is known and not idle for too long. Does not count as use: `put` does."""
        entry = self._entries.get(digest)
        return entry[0] if entry is not None and now - entry[1] < self._ttl_s else None

    def living(self, now: float) -> Iterator[tuple[bytes, str]]:
        """(digest, home) of every session not idle for too long. The table may change while it is being read."""
        for digest in list(self._entries):
            if (home := self.get(digest, now)) is not None:
                yield digest, home

    def heir(self, digest: bytes) -> str | None:
        """Where Envoy was told to go if the home fails."""
        entry = self._entries.get(digest)
        return entry[2] if entry is not None else None

    def size(self, digest: bytes) -> tuple[float, int] | None:
        """When the session was last used, and the tokens of its context then (0: unknown)."""
        entry = self._entries.get(digest)
        return (entry[1], entry[3]) if entry is not None else None

    def put(self, digest: bytes, replica_id: str, now: float, heir: str | None = None, tokens: int = 0) -> None:
        """The session was used at `now`, lives at `replica_id`, and would go on at `heir`. `tokens`: its context."""
        entries = self._entries
        entries.pop(digest, None)
        entries[digest] = (replica_id, now, heir, tokens)
        self._expire(now)
        for _ in range(min(2, len(entries) - self._max)):
            del entries[next(iter(entries))]
            self.evicted += 1

    def forget(self, digest: bytes) -> bool:
        """Whether it was there."""
        return self._entries.pop(digest, None) is not None

    def _expire(self, now: float, at_most: int = 2) -> None:
        """Dead sessions leave from the front, a few at a time, so that no single request pays for many."""
        for _ in range(at_most):
            first = next(iter(self._entries))
            if now - self._entries[first][1] < self._ttl_s:
                return
            del self._entries[first]
