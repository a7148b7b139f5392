"""Which replica a request goes to, and why.

A known session goes home. An id that the client chose goes to the hash's owner, so that Envoy alone would do the same.
A session that begins here is placed by cost and gets an id whose hash is that place. What cannot go home goes to the
next on the hash, and stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from homing.core.chains import Chains, Recognition
from homing.core.fleet import Replica
from homing.core.history import History
from homing.core.placement import cost, filters
from homing.core.placement.load import Load, Place
from homing.core.placement.minting import mint
from homing.core.placement.pools import CompiledPool
from homing.core.placement.prefix import NoPrefixes, PrefixIndex
from homing.core.session import TAG_BYTES, Homes, SessionKey, pool_tag


class Reason(StrEnum):
    """Why a request went where it went: the values of x-homing-decision that pickers set (docs/headers.md)."""

    NEW = "new"  # a session that begins: placed by cost, its id minted to fit the hash
    PLACED = "placed"  # a client's id whose owner takes no new sessions, or an id that could not be minted: pinned
    HOME = "home"  # a known session, at home
    HASH = "hash"  # a client's id seen for the first time (or after a restart): the hash's owner
    HISTORY = "history"  # no id, but its earlier turns were seen: where they were served
    RESPONSE = "response"  # goes on from a response, or asks for one: the only replica that has it
    MOVED = "moved"  # its home cannot serve it any more: now lives with the next on the hash


@dataclass(frozen=True, slots=True)
class Ref:
    """Names a decision to Envoy, whose access log brings it back with the outcome: the session's digest in the table
    of homes, and the replica that Envoy was told."""

    digest: bytes
    told: str

    def encode(self) -> bytes:
        return f"{self.digest.hex()}:{self.told}".encode()

    @classmethod
    def decode(cls, text: str) -> Ref | None:
        """None for what no `encode` gave."""
        digest, _, told = text.partition(":")
        try:
            return cls(bytes.fromhex(digest), told)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Decision:
    """`endpoints` in the order in which Envoy is to try them; `session` when a new id was minted."""

    reason: Reason
    place: Place
    endpoints: tuple[str, ...]
    ref: Ref
    session: bytes | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is known of a request when it is to be placed. `given`: the client sent the session's id."""

    key: SessionKey
    given: bool


class Placer:
    """Holds what placement remembers: homes, chains, load and prefixes.

    `break_tie` picks an index below n, at random in production.
    """

    __slots__ = ("_break_tie", "_secret", "chains", "homes", "load", "prefixes")

    def __init__(
        self,
        homes: Homes,
        chains: Chains,
        load: Load,
        secret: bytes,
        break_tie: Callable[[int], int],
        prefixes: PrefixIndex | None = None,
    ) -> None:
        self.homes = homes
        self.chains = chains
        self.load = load
        self.prefixes = prefixes or NoPrefixes()
        self._secret = secret
        self._break_tie = break_tie

    def place(self, pool: CompiledPool, arrival: Arrival, now: float) -> Decision | None:
        """None when no replica is fit: then Envoy's panic decides. Does not count the request as in flight."""
        if not pool.members:
            return None
        if not arrival.given:
            return self._begin(pool, arrival.key, self._cheapest(pool, _newcomers(pool)), now)
        digest = arrival.key.digest(pool.pool.id, self._secret)
        reason, target = self._resident(pool, arrival.key, digest, now)
        return self._settle(pool, reason, target, arrival.key.text, digest, now)

    def place_by_history(
        self, pool: CompiledPool, key: SessionKey, history: History, now: float
    ) -> tuple[Recognition, Decision | None]:
        """For a client that sends no id: where its earlier turns were served. None as in `place`."""
        recognition, known = self.chains.look_up(history, now)
        if not pool.members:
            return recognition, None
        residents = [r for r in pool.members if r.id in known and filters.serves_its_own(r)]
        target = self._cheapest(pool, residents or _newcomers(pool))
        self.chains.put(history, target.id, now)
        return recognition, self._begin(pool, key, target, now, Reason.HISTORY if residents else Reason.NEW)

    def holder(self, pool: CompiledPool, key: SessionKey, now: float) -> Replica | None:
        """The replica that alone has what `key` names, if it is known and serves. Counts as use."""
        digest = key.digest(pool.pool.id, self._secret)
        replica_id = self.homes.get(digest, now)
        if replica_id is None or (replica := pool.member(replica_id)) is None or not filters.serves_its_own(replica):
            return None
        self.homes.put(digest, replica_id, now)
        return replica

    def place_with(self, pool: CompiledPool, arrival: Arrival, holder: Replica, now: float) -> Decision:
        """A turn of a session that only `holder` can serve: the session lives there from now on."""
        if not arrival.given:
            return self._begin(pool, arrival.key, holder, now, Reason.RESPONSE)
        digest = arrival.key.digest(pool.pool.id, self._secret)
        return self._settle(pool, Reason.RESPONSE, holder, arrival.key.text, digest, now)

    def visit(self, pool: CompiledPool, holder: Replica) -> Decision:
        """A request that is no turn, for `holder` alone: moves nobody, whatever becomes of it."""
        return Decision(Reason.RESPONSE, (pool.pool.id, holder.id), (holder.address,), Ref(b"", holder.id))

    def remember(self, pool_id: str, key: SessionKey, replica_id: str, now: float) -> None:
        """What `key` names lives at `replica_id`: an answer said so."""
        self.homes.put(key.digest(pool_id, self._secret), replica_id, now)

    def forget(self, pool_id: str, key: SessionKey, now: float) -> bool:
        return self.homes.forget(key.digest(pool_id, self._secret), now)

    def seed(self, pool_id: str, tenant: bytes) -> bytes:
        """What keeps histories of pools and tenants apart."""
        return b"\0".join((self._secret, pool_id.encode(), tenant))

    def close(self, pools: Iterable[CompiledPool], key: SessionKey, now: float) -> bool:
        """The session has ended: its homes in `pools` are forgotten. Whether there was one."""
        return sum(self.forget(pool.pool.id, key, now) for pool in pools) > 0

    def digest(self, pool_id: str, key: SessionKey) -> bytes:
        """Under which `key` stands in the table of homes."""
        return key.digest(pool_id, self._secret)

    def inhabitants(self, pools: Iterable[CompiledPool], now: float) -> Iterator[tuple[bytes, str, str]]:
        """(digest, pool, home) of each session, one after the other. There may be many: take some at a time."""
        pool_ids = {pool_tag(pool.pool.id, self._secret): pool.pool.id for pool in pools}
        for digest, home in self.homes.living(now):
            if (pool_id := pool_ids.get(digest[:TAG_BYTES])) is not None:
                yield digest, pool_id, home

    def residents(self, pools: Iterable[CompiledPool], now: float) -> Iterator[Place]:
        """Where each session lives, likewise."""
        return ((pool_id, home) for _, pool_id, home in self.inhabitants(pools, now))

    def served_by(self, pool: CompiledPool, ref: Ref, replica_id: str, now: float) -> bool:
        """Envoy's log says who really served. If that is another than it was told, and the session has not moved since,
        it lives there now; True then. A ref that is not ours (a sibling's, an ended session's) changes nothing."""
        if replica_id == ref.told or self.homes.get(ref.digest, now) != ref.told or pool.member(replica_id) is None:
            return False
        self.homes.put(ref.digest, replica_id, now)
        return True

    def _resident(self, pool: CompiledPool, key: SessionKey, digest: bytes, now: float) -> tuple[Reason, Replica]:
        home_id = self.homes.get(digest, now)
        if home_id is not None and (home := pool.member(home_id)) is not None and filters.serves_its_own(home):
            return Reason.HOME, home
        # Envoy has been retrying at the heir since the home failed: the session may live there already.
        if home_id is not None and (heir_id := self.homes.heir(digest)) is not None:
            heir = pool.member(heir_id)
            if heir is not None and filters.takes_new(heir):
                return Reason.MOVED, heir
        lost = home_id is not None
        for rank, candidate in enumerate(pool.walk(key.text)):
            if filters.takes_new(candidate):
                return Reason.MOVED if lost else Reason.HASH if rank == 0 else Reason.PLACED, candidate
        # all drain: better there than nowhere
        return Reason.MOVED if lost else Reason.HASH, pool.owner(key.text) or pool.members[0]

    def _begin(
        self, pool: CompiledPool, key: SessionKey, target: Replica, now: float, reason: Reason = Reason.NEW
    ) -> Decision:
        """An id whose hash is `target`, so that the next turn needs no memory, nor a picker."""
        minted = mint(key.session, key.prefix, pool.table, pool.members.index(target))
        named = key.named(minted if minted is not None else key.session)
        digest = named.digest(pool.pool.id, self._secret)
        if minted is None and reason is Reason.NEW:
            reason = Reason.PLACED
        return self._settle(pool, reason, target, named.text, digest, now, named.session)

    def _cheapest(self, pool: CompiledPool, candidates: Sequence[Replica]) -> Replica:
        costs = [cost.in_flight(pool.pool.id, r, self.load) for r in candidates]
        least = min(costs)
        best = [r for r, c in zip(candidates, costs, strict=True) if c == least]
        return best[self._break_tie(len(best))]

    def _settle(
        self,
        pool: CompiledPool,
        reason: Reason,
        target: Replica,
        text: bytes,
        digest: bytes,
        now: float,
        session: bytes | None = None,
    ) -> Decision:
        heir = self._heir(pool, target, text)
        if reason is not Reason.HISTORY:  # its id is a new one with every turn: nobody will ask for this one
            self.homes.put(digest, target.id, now, heir.id if heir else None)
        endpoints = (target.address, heir.address) if heir else (target.address,)
        return Decision(reason, (pool.pool.id, target.id), endpoints, Ref(digest, target.id), session)

    def _heir(self, pool: CompiledPool, target: Replica, text: bytes) -> Replica | None:
        """Where a retry goes, and the session with it if its home is dead: the next on the hash."""
        for candidate in pool.walk(text):
            if candidate.address != target.address and filters.takes_new(candidate):
                return candidate
        return None


def _newcomers(pool: CompiledPool) -> Sequence[Replica]:
    """Who may take a new session; if all drain, anybody."""
    return [r for r in pool.members if filters.takes_new(r)] or pool.members
