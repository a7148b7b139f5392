"""Where sessions live: the home of every active session, bounded in number and in idle time.

The hash is the default home, so this table is an optimisation that may be lost: a session that is not in it goes to
its hash's owner. An entry whose home differs from what the hash says is a pin.

Pickers share their tables: each says what changed in its own (`Homes.words`) and takes in what others say
(`Homes.absorb`). Of two homes the later one holds, and of two times of use too, so the order and the number of the
messages make no difference: docs/decisions/0009-the-shared-table.md.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from math import inf

import msgspec

from homing.core.journal import Journal, Word
from homing.core.recency import Recency

KEY_ID_BYTES = 256
"""So much of an id is in the key that Envoy hashes. Longer ids are counted as odd; two that begin alike have the same
default home, and are two sessions all the same."""

CLOSED_S = 60.0
"""So long it is remembered that a session was closed, since an older word about it may still be on its way."""

MAX_SKEW_S = 3600.0
"""What is said to have happened further ahead of our clock is not believed."""

MAX_NAMES = 4096

TAG_BYTES = 4


class SessionKey(msgspec.Struct, frozen=True, gc=False):
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


class Digester:
    """`SessionKey.digest` for the sessions of one pool: what is the same for all of them is worked out once."""

    __slots__ = ("_begun", "_tag")

    def __init__(self, pool_id: str, secret: bytes) -> None:
        self._tag = pool_tag(pool_id, secret)
        self._begun = blake2b(pool_id.encode() + b"\0", key=secret, digest_size=12)

    def of(self, key: SessionKey) -> bytes:
        """The same as `key.digest`, in half of the time."""
        hashed = self._begun.copy()
        hashed.update(key.tenant + b"\0" + key.session)
        return self._tag + hashed.digest()


class Digesters:
    """`SessionKey.digest` for all pools. `secret`: what digests are made with."""

    __slots__ = ("_by_pool", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._by_pool: dict[str, Digester] = {}

    def of(self, pool_id: str, key: SessionKey) -> bytes:
        digester = self._by_pool.get(pool_id)
        if digester is None:
            digester = self._by_pool[pool_id] = Digester(pool_id, self._secret)
        return digester.of(key)


def pool_tag(pool_id: str, secret: bytes) -> bytes:
    """How the digests of a pool's sessions begin, so that they can be counted."""
    return blake2b(pool_id.encode(), key=secret, digest_size=TAG_BYTES).digest()


class Homes:
    """Session digest -> replica id, with a sliding idle time. Never refuses: the longest idle leaves first.

    Times are seconds, passed in, of a clock that never goes back. Where tables are shared it must be near the time of
    day: who moved a session last is told by it. Held in columns, not in an object for each session: a third less
    memory, and nothing for the garbage collector to walk.
    """

    __slots__ = (
        "_closed",
        "_digests",
        "_heard",
        "_heirs",
        "_journals",
        "_max",
        "_names",
        "_order",
        "_quarter_s",
        "_replicas",
        "_slots",
        "_stamps",
        "_tokens",
        "_ttl_s",
        "_used",
        "evicted",
    )  # fmt: skip

    def __init__(self, ttl_s: float, max_sessions: int) -> None:
        self.limit(ttl_s, max_sessions)
        self._slots: dict[bytes, int] = {}
        self._order = Recency()
        self._digests: list[bytes] = [b""]  # columns by slot; Recency begins with slot 1
        self._replicas: list[str] = [""]
        self._heirs: list[str | None] = [None]
        self._used = array("d", (0.0,))
        self._stamps = array("d", (0.0,))
        self._tokens = array("q", (0,))
        self._heard = array("b", (0,))  # 1: the last use was at another picker
        self._closed: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # digest -> (stamp, when it was heard)
        self._journals: list[Journal] = []
        self._names: dict[str, str] = {}  # so that what siblings say does not bring a copy of each replica's id
        self.evicted = 0
        """Sessions that left before their idle time was over."""

    def limit(self, ttl_s: float, max_sessions: int) -> None:
        """New bounds. What is too many leaves one by one, with each session that comes."""
        self._ttl_s = ttl_s
        self._quarter_s = ttl_s / 4
        self._max = max_sessions

    @property
    def ttl_s(self) -> float:
        return self._ttl_s

    @property
    def told_life_s(self) -> float:
        """So long what was told of a session counts: use is told at most once in each quarter of the idle time."""
        return self._ttl_s + self._quarter_s

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, digest: bytes, now: float) -> str | None:
        """The home, if the session is known and not idle for too long. Does not count as use: `put` does."""
        slot = self._slots.get(digest)
        return self._replicas[slot] if slot is not None and now - self._used[slot] < self._life_s(slot) else None

    def last(self, digest: bytes, now: float) -> tuple[str, float, int] | None:
        """`get` and `size` in one look: the home, when the session was last used, the tokens of its context then."""
        slot = self._slots.get(digest)
        if slot is None:
            return None
        used = self._used[slot]
        return (self._replicas[slot], used, self._tokens[slot]) if now - used < self._life_s(slot) else None

    def living(self, now: float) -> Iterator[tuple[bytes, str]]:
        """(digest, home) of every session not idle for too long. The table may change while it is being read."""
        for digest in list(self._slots):
            if (home := self.get(digest, now)) is not None:
                yield digest, home

    def at(self, replica_id: str, now: float) -> list[bytes]:
        """The sessions that live there, of all pools: by the columns, a tenth of the time that `living` takes, since it
        is asked for all at once."""
        used, digests = self._used, self._digests
        slots = [slot for slot, home in enumerate(self._replicas) if home == replica_id]
        return [digests[slot] for slot in slots if now - used[slot] < self._life_s(slot)]

    def heir(self, digest: bytes) -> str | None:
        """Where Envoy was told to go if the home fails."""
        slot = self._slots.get(digest)
        return None if slot is None else self._heirs[slot]

    def size(self, digest: bytes) -> tuple[float, int] | None:
        """When the session was last used, and the tokens of its context then (0: unknown)."""
        slot = self._slots.get(digest)
        return None if slot is None else (self._used[slot], self._tokens[slot])

    def put(self, digest: bytes, replica_id: str, now: float, heir: str | None = None, tokens: int = 0) -> None:
        """The session was used at `now`, lives at `replica_id`, and would go on at `heir`. `tokens`: its context.

        Others are told of another home or heir; of mere use at most once in each quarter of the idle time.
        """
        slot = self._slots.get(digest)
        if slot is None:
            closed = self._closed.pop(digest, None) if self._closed else None
            stamp = now if closed is None else _after(closed[0], now)
            self._add(digest, replica_id, heir, now, stamp, tokens)
            self._note(digest)
        else:
            used = self._used
            if self._replicas[slot] != replica_id or self._heirs[slot] != heir:
                self._replicas[slot], self._heirs[slot] = replica_id, heir
                self._stamps[slot] = _after(self._stamps[slot], now)
                self._note(digest)
            elif now // self._quarter_s != used[slot] // self._quarter_s:
                self._note(digest)
            used[slot] = now
            self._tokens[slot] = tokens
            self._heard[slot] = 0
            self._order.renew(slot)
        self._shrink(now)

    def forget(self, digest: bytes, now: float) -> bool:
        """The session has ended. Whether it was known; others are told in either case, since they may know it."""
        slot = self._slots.get(digest)
        if slot is not None:
            self._remove(slot)
        if self._journals:
            self._close(digest, now if slot is None else _after(self._stamps[slot], now), now)
            self._note(digest)
        return slot is not None

    # What pickers tell each other

    def journal(self) -> Journal:
        """For one listener: from now on it gets a note of every change that is made here."""
        journal = Journal()
        self._journals.append(journal)
        return journal

    def words(self, journal: Journal, at_most: int, now: float) -> list[Word]:
        """The next of what its listener is to be told. Those that do not reach it are noted again by the caller."""
        if journal.lost:
            journal.restart(self._slots)
        return self.words_of(journal.take(at_most), now)

    def words_of(self, digests: Iterable[bytes], now: float) -> list[Word]:
        """What is known of them; nothing of a session that has left."""
        return [word for digest in digests if (word := self._word(digest, now)) is not None]

    def digests(self) -> list[bytes]:
        """Of every session in the table."""
        return list(self._slots)

    def absorb(self, words: Sequence[Word], now: float) -> int:
        """What another table says; how many of the words changed something here. They are not told to others, for who
        says them says them to all; but who says something older than what is known here is told the newer."""
        return sum([self._take_in(word, now) for word in words])

    def _take_in(self, word: Word, now: float) -> bool:
        if not (0 <= word.idle_s < self.told_life_s and word.stamp < now + MAX_SKEW_S):  # false for a NaN too
            return False
        slot = self._slots.get(word.digest)
        if slot is None:
            known = self._closed.get(word.digest, (-inf, 0.0))[0], "", ""
        else:
            known = self._stamps[slot], self._replicas[slot], self._heirs[slot] or ""
        newer = word.outranks(*known)
        if not newer and (word.stamp, word.replica, word.heir) != known:
            self._note(word.digest)
        if newer and not word.replica:
            if slot is not None:
                self._remove(slot)
            self._close(word.digest, word.stamp, now)
        elif newer:
            self._move_in(word, slot, now)
        elif slot is None:
            return False
        return self._used_elsewhere(word, now) or newer

    def _move_in(self, word: Word, slot: int | None, now: float) -> None:
        replica, heir = self._name(word.replica), self._name(word.heir) if word.heir else None
        if slot is None:
            self._closed.pop(word.digest, None)
            self._add(word.digest, replica, heir, now - word.idle_s, word.stamp, word.tokens, heard=1)
            self._shrink(now)
        else:
            self._replicas[slot], self._heirs[slot], self._stamps[slot] = replica, heir, word.stamp

    def _used_elsewhere(self, word: Word, now: float) -> bool:
        slot = self._slots.get(word.digest)
        used = now - word.idle_s
        if slot is None or not word.replica or used <= self._used[slot]:
            return False
        self._used[slot], self._tokens[slot], self._heard[slot] = used, word.tokens, 1
        self._order.renew(slot)
        return True

    def _word(self, digest: bytes, now: float) -> Word | None:
        slot = self._slots.get(digest)
        if slot is not None:
            idle_s = max(0.0, now - self._used[slot])
            return Word(
                digest, self._replicas[slot], self._heirs[slot] or "", self._stamps[slot], idle_s, self._tokens[slot]
            )
        closed = self._closed.get(digest)
        return None if closed is None else Word(digest, "", "", closed[0], 0.0)

    def _note(self, digest: bytes) -> None:
        for journal in self._journals:
            journal.note(digest)

    def _name(self, replica_id: str) -> str:
        if len(self._names) > MAX_NAMES:
            self._names.clear()
        return self._names.setdefault(replica_id, replica_id)

    # Columns and bounds

    def _life_s(self, slot: int) -> float:
        """From the last use that is known. Where that was heard of, there may have been others since."""
        return self.told_life_s if self._heard[slot] else self._ttl_s

    def _add(
        self, digest: bytes, replica: str, heir: str | None, used: float, stamp: float, tokens: int, heard: int = 0
    ) -> None:
        slot = self._slots[digest] = self._order.add()
        if slot < len(self._digests):
            self._digests[slot], self._replicas[slot], self._heirs[slot] = digest, replica, heir
            self._used[slot], self._stamps[slot], self._tokens[slot] = used, stamp, tokens
            self._heard[slot] = heard
            return
        self._digests.append(digest)
        self._replicas.append(replica)
        self._heirs.append(heir)
        self._heard.append(heard)
        self._used.append(used)
        self._stamps.append(stamp)
        self._tokens.append(tokens)

    def _remove(self, slot: int) -> None:
        del self._slots[self._digests[slot]]
        self._order.remove(slot)
        self._digests[slot], self._replicas[slot], self._heirs[slot] = b"", "", None

    def _close(self, digest: bytes, stamp: float, now: float) -> None:
        self._closed.pop(digest, None)
        self._closed[digest] = (stamp, now)
        for _ in range(2):
            first = next(iter(self._closed))
            if len(self._closed) <= self._max and now - self._closed[first][1] < CLOSED_S:
                return
            del self._closed[first]
            if not self._closed:
                return

    def _shrink(self, now: float) -> None:
        """The dead leave from the front, and who is too many, a few at a time: no single request pays for many."""
        slots = self._slots
        slot = self._order.oldest()
        if len(slots) <= self._max and now - self._used[slot] < self._ttl_s:  # nearly always
            return
        for _ in range(2):
            slot = self._order.oldest()
            if not slot or now - self._used[slot] < self._life_s(slot):
                break
            self._remove(slot)
        if len(slots) > self._max:
            for _ in range(min(2, len(slots) - self._max)):
                self._remove(self._order.oldest())
                self.evicted += 1


def _after(stamp: float, now: float) -> float:
    """A moment that comes after `stamp` for everybody, also where its clock was ahead of ours."""
    return max(now, stamp + 1e-6)
