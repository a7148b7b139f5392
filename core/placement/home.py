"""Which replica a request goes to, and why.

A known session goes home. An id that the client chose goes to the hash's owner, so that Envoy alone would do the same.
A session that begins here is placed by cost and gets an id whose hash is that place. What cannot go home goes to the
next on the hash, and stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from homing.core.chains import Chains, Recognition
from homing.core.fleet import Replica
from homing.core.history import History
from homing.core.placement import filters
from homing.core.placement.asked import Asked, There
from homing.core.placement.decision import Arrival, Decision, Reason, Ref
from homing.core.placement.load import Load, Place
from homing.core.placement.minting import Shard, looks_minted, mint
from homing.core.placement.pools import CompiledPool
from homing.core.placement.prefix import NoPrefixes, PrefixIndex
from homing.core.placement.staying import Staying
from homing.core.placement.weighing import Scales
from homing.core.session import KEY_ID_BYTES, TAG_BYTES, Digesters, Homes, SessionKey, pool_tag

FREE = 0.2
"""So much of a prompt's tokens may wait before it, for its time to say something of the prompt."""


LEAST_HELD = 256
"""Tokens. A prefix shorter than that saves less than one step of an engine takes, and draws nobody: else a greeting
that all clients begin with would gather its sessions at one replica while another stands empty."""


class Finish(Protocol):
    """What makes of an id the one that is issued to the tenant's client."""

    def __call__(self, session: bytes, tenant: bytes) -> bytes: ...


class Placer:
    """Holds what placement remembers: homes, chains, load and prefixes.

    `break_tie` picks an index below n, at random in production.
    """

    __slots__ = ("_digesters", "_secret", "chains", "finish", "homes", "load", "prefixes", "scales", "shard", "staying")

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
        self.scales = Scales(load, break_tie)
        self._digesters = Digesters(secret)
        self.staying = Staying(homes, self.scales, self._digesters)
        self.shard: Shard | None = None
        """Where several pickers share out the sessions: new ids come back to this one."""
        self._secret = secret
        self.finish: Finish | None = None
        """Where ids are signed."""

    def place(self, pool: CompiledPool, arrival: Arrival, now: float) -> Decision | None:
        """None when no replica is fit: then Envoy's panic decides. Does not count the request as in flight."""
        if not arrival.given:
            asked = self.asked(pool, arrival, now)
            asked.begins = True
            weighed = self.scales.weigh(pool, asked, now)
            return self._begin(pool, arrival.key, asked, self.scales.least(weighed), now) if weighed else None
        digest = self._digesters.of(pool.pool.id, arrival.key)
        asked = self.asked(pool, arrival, now, digest)
        reason, there = self._resident(pool, arrival.key, asked, digest, now)
        return self._settle(pool, reason, there, asked, arrival.key.text, digest, now) if there is not None else None

    def place_by_history(
        self, pool: CompiledPool, arrival: Arrival, history: History, now: float
    ) -> tuple[Recognition, Decision | None]:
        """For a client that sends no id: where its earlier turns were served. None as in `place`."""
        recognition, known = self.chains.look_up(history, now)
        residents = [replica_id for replica_id in known if pool.member(replica_id) is not None]
        alone = len(residents) == 1  # has all of it: who else holds what is only asked if it may better be left
        asked = self.asked(pool, arrival, now, look=not alone)
        if residents:
            asked.home = residents[0]
            asked.home_size = max(0.0, asked.tokens - self.scales.learned(pool.pool.id).uncached)
            asked.home_cached = asked.home_expected = asked.home_size
            if asked.held is None:
                asked.held = dict.fromkeys(residents, int(asked.home_cached))
        asked.begins = not residents
        there = self._content(pool, asked, now) if alone else None
        if there is None:
            if alone and (held := self._held(pool.pool.id, arrival, asked.tokens, now)) is not None:
                asked.held = held
            weighed = self.scales.weigh(pool, asked, now)
            if not weighed:
                return recognition, None
            there = self.scales.least(weighed)
        self.chains.put(history, there.replica.id, now)
        reason = Reason.NEW if not residents else Reason.HISTORY if there.replica.id in residents else Reason.LEFT
        return recognition, self._begin(pool, arrival.key, asked, there, now, reason)

    def begun(self, decision: Decision, now: float) -> None:
        """The request is on its way: in flight until `load.end`."""
        self.scales.begun(decision, now)

    def first_token(self, pool: CompiledPool, ref: Ref, ttft_s: float, now: float) -> None:
        """Envoy's log says when the first byte came from the replica that it was told, at the first attempt."""
        replica = pool.member(ref.told)
        if replica is not None:
            self.scales.first_token(pool.pool.id, replica, ref.digest, ref.tokens, ttft_s, now, at_most=ref.at_most)

    def holder(self, pool: CompiledPool, key: SessionKey, now: float) -> Replica | None:
        """The replica that alone has what `key` names, if it is known and serves. Counts as use."""
        digest = self._digesters.of(pool.pool.id, key)
        replica_id = self.homes.get(digest, now)
        if replica_id is None or (replica := pool.member(replica_id)) is None or not replica.in_hash:
            return None
        self.homes.put(digest, replica_id, now)
        return replica

    def place_with(self, pool: CompiledPool, arrival: Arrival, holder: Replica, now: float) -> Decision:
        """A turn of a session that only `holder` can serve: the session lives there from now on."""
        digest = self._digesters.of(pool.pool.id, arrival.key) if arrival.given else None
        asked = self.asked(pool, arrival, now, digest)
        there = self.scales.there(pool.pool.id, holder, asked, now)
        if digest is None:
            return self._begin(pool, arrival.key, asked, there, now, Reason.RESPONSE)
        return self._settle(pool, Reason.RESPONSE, there, asked, arrival.key.text, digest, now)

    def visit(self, pool: CompiledPool, holder: Replica) -> Decision:
        """A request that is no turn, for `holder` alone: moves nobody, whatever becomes of it."""
        return Decision(Reason.RESPONSE, (pool.pool.id, holder.id), (holder.address,), Ref(b"", holder.id))

    def remember(self, pool_id: str, key: SessionKey, replica_id: str, now: float) -> None:
        """What `key` names lives at `replica_id`: an answer said so."""
        self.homes.put(self._digesters.of(pool_id, key), replica_id, now)

    def forget(self, pool_id: str, key: SessionKey, now: float) -> bool:
        digest = self._digesters.of(pool_id, key)
        self._inactive(pool_id, digest, now)
        return self.homes.forget(digest, now)

    def unknown(self, pool: CompiledPool, key: SessionKey, now: float) -> bytes | None:
        """The digest of a session that has no home here."""
        digest = self._digesters.of(pool.pool.id, key)
        return digest if self.homes.get(digest, now) is None else None

    def seed(self, pool_id: str, tenant: bytes) -> bytes:
        """What keeps histories of pools and tenants apart."""
        return b"\0".join((self._secret, pool_id.encode(), tenant))

    def close(self, pools: Iterable[CompiledPool], key: SessionKey, now: float) -> bool:
        """The session has ended: its homes in `pools` are forgotten. Whether there was one."""
        return sum(self.forget(pool.pool.id, key, now) for pool in pools) > 0

    def digest(self, pool_id: str, key: SessionKey) -> bytes:
        """Under which `key` stands in the table of homes."""
        return self._digesters.of(pool_id, key)

    def inhabitants(self, pools: Iterable[CompiledPool], now: float) -> Iterator[tuple[bytes, str, str]]:
        """(digest, pool, home) of each session, one after the other. There may be many: take some at a time."""
        pool_ids = {pool_tag(pool.pool.id, self._secret): pool.pool.id for pool in pools}
        for digest, home in self.homes.living(now):
            if (pool_id := pool_ids.get(digest[:TAG_BYTES])) is not None:
                yield digest, pool_id, home

    def residents(self, pools: Iterable[CompiledPool], now: float) -> Iterator[Place]:
        """Where each session lives, likewise."""
        return ((pool_id, home) for _, pool_id, home in self.inhabitants(pools, now))

    def restarted(self, pool: CompiledPool, replica_id: str, now: float) -> int:
        """The replica is another process, and cold: its sessions may go where they like. Returns how many did."""
        place = (pool.pool.id, replica_id)
        self.prefixes.forget(place)
        self.load.forget(place)
        tag = pool_tag(pool.pool.id, self._secret)
        lost = [digest for digest in self.homes.at(replica_id, now) if digest.startswith(tag)]
        for digest in lost:
            self.homes.forget(digest, now)
        return len(lost)

    def served_by(self, pool: CompiledPool, ref: Ref, replica_id: str, now: float) -> bool:
        """Envoy's log says who really served. If that is another than it was told, and the session has not moved since,
        it lives there now; True then. A ref that is not ours (a sibling's, an ended session's) changes nothing."""
        if replica_id == ref.told or self.homes.get(ref.digest, now) != ref.told or pool.member(replica_id) is None:
            return False
        _, tokens = self.homes.size(ref.digest) or (now, 0)
        self._remember(pool.pool.id, replica_id, tokens, ref.digest, now, None)
        return True

    def asked(
        self, pool: CompiledPool, arrival: Arrival, now: float, digest: bytes | None = None, *, look: bool = True
    ) -> Asked:
        """The request in tokens, with the session's home where it has one that is fit for it, and with who holds what
        of its prompt, if that is to be looked for. Changes nothing."""
        pool_id = pool.pool.id
        learned = self.scales.learned(pool_id)
        asked = Asked(
            arrival.size_bytes / learned.bytes_per_token if arrival.size_bytes else learned.work,
            self.scales.settings(pool_id),
            size_bytes=arrival.size_bytes,
            adapter=arrival.adapter,
            subset=arrival.subset,
            further_turns=learned.further_turns,
            later_uncached=learned.uncached,
        )
        if look:
            asked.held = self._held(pool_id, arrival, asked.tokens, now)
        if digest is None:
            asked.anywhere_cached = asked.tokens * learned.found_at_first
            return asked
        home_id = self.homes.get(digest, now)
        home = pool.member(home_id) if home_id is not None else None
        if home is not None and filters.fit(asked, There(home)):
            _, before = self.homes.size(digest) or (0.0, 0)
            if not arrival.size_bytes:
                asked.tokens = before + learned.uncached
            asked.home, asked.home_size = home.id, float(before)
            asked.home_expected = max(0.0, min(before, asked.tokens - 1.0))
            asked.home_cached = asked.home_expected * self.scales.kept(pool_id, home)
        elif home_id is None:
            self._unknown(pool, arrival.key, asked)
        return asked

    def _held(self, pool_id: str, arrival: Arrival, tokens: float, now: float) -> dict[str, int] | None:
        """What each replica holds of the prompt, in tokens of the request; None where nobody knows of any."""
        if arrival.prompt is None or not (held := self.prefixes.held(pool_id, arrival.prompt, now)):
            return None
        share = tokens / max(arrival.prompt.total, 1)
        return {name: own for name, all_of_it in held.items() if (own := int(all_of_it * share)) >= LEAST_HELD}

    def _unknown(self, pool: CompiledPool, key: SessionKey, asked: Asked) -> None:
        """A session that nobody remembers: new, or forgotten."""
        owner = pool.owner(key.text)
        if owner is not None and looks_minted(key.session) and filters.fit(asked, There(owner)):
            asked.home = owner.id  # it lives where its hash is
            asked.home_cached = asked.home_expected = max(
                0.0, asked.tokens - self.scales.learned(pool.pool.id).uncached
            )
            return
        # the owner of the hash, or who will be once those that drain are gone
        heir = next((r for r in pool.walk(key.text) if r.takes_new_sessions and filters.fit(asked, There(r))), owner)
        asked.owner = heir.id if heir is not None else None
        asked.anywhere_cached = asked.tokens * self.scales.learned(pool.pool.id).found_at_first
        asked.begins = True

    def _content(self, pool: CompiledPool, asked: Asked, now: float) -> There | None:
        """Home, if it is fit and leaving it is out of the question."""
        home = pool.member(asked.home) if asked.home is not None else None
        if (
            home is None
            or not filters.fit(asked, There(home))
            or not self.scales.content(pool.pool.id, asked, home, now)
        ):
            return None
        return self.scales.there(pool.pool.id, home, asked, now)

    def _resident(
        self, pool: CompiledPool, key: SessionKey, asked: Asked, digest: bytes, now: float
    ) -> tuple[Reason, There | None]:
        pool_id = pool.pool.id
        home_id = self.homes.get(digest, now)
        if asked.home is not None:
            home = pool.member(asked.home)
            assert home is not None
            known = Reason.HOME if home_id is not None else Reason.HASH
            if self.scales.content(pool_id, asked, home, now):
                return known, self.scales.there(pool_id, home, asked, now)
            there = self.scales.least(self.scales.weigh(pool, asked, now))
            return (known if there.replica.id == asked.home else Reason.LEFT), there
        if home_id is not None:
            return Reason.MOVED, self.refuge(pool, key, asked, digest, now)
        weighed = self.scales.weigh(pool, asked, now)
        if not weighed:
            return Reason.HASH, None
        there = self.scales.least(weighed)
        owner = pool.owner(key.text)
        return (Reason.HASH if owner is not None and there.replica.id == owner.id else Reason.PLACED), there

    def refuge(self, pool: CompiledPool, key: SessionKey, asked: Asked, digest: bytes, now: float) -> There | None:
        """Where a session goes that lost its home: not by cost but by the hash, so that all agree. Envoy has been
        retrying at the heir since the home failed, so the session may live there already."""
        heir = pool.member(self.homes.heir(digest) or "")
        able = [r for r in pool.walk(key.text) if filters.fit(asked, There(r))]
        if heir is not None and heir in able and heir.takes_new_sessions:
            able = [heir]
        # all drain: better there than nowhere
        target = next((r for r in able if r.takes_new_sessions), able[0] if able else None)
        return self.scales.there(pool.pool.id, target, asked, now) if target is not None else None

    def _begin(
        self, pool: CompiledPool, key: SessionKey, asked: Asked, there: There, now: float, reason: Reason = Reason.NEW
    ) -> Decision:
        """An id whose hash is `there`, so that the next turn needs no memory, nor a picker."""
        finish = None if self.finish is None else partial(self.finish, tenant=key.tenant)
        host, prefix = pool.by_id[there.replica.id], key.prefix
        minted = mint(key.session, prefix, pool.table, host, shard=self.shard, finish=finish)
        session = minted if minted is not None else finish(key.session) if finish else key.session
        named = SessionKey(key.tenant, session, prefix + session[:KEY_ID_BYTES])
        digest = self._digesters.of(pool.pool.id, named)
        if minted is None and reason is Reason.NEW:
            reason = Reason.PLACED
        return self._settle(pool, reason, there, asked, named.text, digest, now, named.session)

    def _settle(
        self,
        pool: CompiledPool,
        reason: Reason,
        there: There,
        asked: Asked,
        text: bytes,
        digest: bytes,
        now: float,
        session: bytes | None = None,
    ) -> Decision:
        pool_id, target = pool.pool.id, there.replica
        heir = self._heir(pool, target, asked, text)
        if session is not None and asked.home is not None:  # known by its history
            # its id is a new one with every turn: nobody will ask for this one
            self.load.meter((pool_id, target.id)).activity.grown(asked.tokens, asked.home_size, now)
        else:
            self._remember(pool_id, target.id, asked.tokens, digest, now, heir.id if heir else None)
        uncached = max(0.0, asked.tokens - there.cached)
        first_prompt = asked.begins and asked.held is None
        to_prefill = asked.tokens if first_prompt else uncached
        if first_prompt and there.waiting > FREE * to_prefill:
            to_prefill = -there.waiting  # how much of it is cached nobody knows, nor what the time is due to
        expected = asked.home_expected if target.id == asked.home else 0.0
        self.load.meter((pool_id, target.id)).retention.sent(asked.tokens, expected)
        learned = self.scales.learned(pool_id)
        if asked.home is None and asked.begins:
            learned.begun(uncached)
        else:
            learned.continued(uncached)
        ref = Ref(digest, target.id, int(there.waiting + to_prefill), first_prompt)
        endpoints = (target.address, heir.address) if heir else (target.address,)
        place, size_bytes = (pool_id, target.id), asked.size_bytes
        return Decision(reason, place, endpoints, ref, session, uncached, size_bytes, target.rank, asked.tokens)

    def _remember(
        self, pool_id: str, replica_id: str, tokens: float, digest: bytes, now: float, heir: str | None
    ) -> None:
        """The session lives there from now on, and is active there and nowhere else."""
        before = self.homes.get(digest, now)
        last = self.homes.size(digest)
        if before is not None and before != replica_id:
            self._inactive(pool_id, digest, now)
        activity = self.load.meter((pool_id, replica_id)).activity
        activity.used(tokens, now, last if before == replica_id else None)
        self.homes.put(digest, replica_id, now, heir, int(tokens))

    def _inactive(self, pool_id: str, digest: bytes, now: float) -> None:
        home, last = self.homes.get(digest, now), self.homes.size(digest)
        if home is not None and last is not None:
            self.load.meter((pool_id, home)).activity.left(last, now)

    def _heir(self, pool: CompiledPool, target: Replica, asked: Asked, text: bytes) -> Replica | None:
        """Where a retry goes, and the session with it if its home is dead: as `CompiledPool.heir`, if it is fit."""
        if not asked.wishes:
            return pool.heir(text, target)
        for candidate in pool.walk(text):
            if (
                candidate.address != target.address
                and candidate.rank == target.rank
                and candidate.takes_new_sessions
                and filters.fit(asked, There(candidate))
            ):
                return candidate
        return None
