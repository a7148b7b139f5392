"""Where requests are placed, and what is remembered of it: what a request asks of its picker once its headers are read.

Synchronous, on one event loop, like the picker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homing.core.chat import NotAnObjectError
from homing.core.history import Said, header_safe, read
from homing.core.placement.decision import Arrival, Decision
from homing.core.placement.home import Placer
from homing.core.placement.kept import Kept
from homing.core.placement.pools import CompiledPool
from homing.core.prefix.prompt import Prompt
from homing.core.session import SessionKey
from homing.ext_proc.body import Bodies
from homing.ext_proc.counts import Counts
from homing.ext_proc.events import Reject
from homing.ext_proc.models import Models
from homing.ext_proc.prefixes import Prefixes
from homing.ext_proc.tokenizing import Sent
from homing.ext_proc.unread import Unread


class Placing:
    """The desk of `routed`, `first_turn` and `response_requests`, and the memory of `learning`. `pools`: those that
    there are now; `clock` is monotonic, in seconds."""

    def __init__(
        self,
        placer: Placer,
        counts: Counts,
        bodies: Bodies,
        models: Models,
        prefixes: Prefixes | None,
        kept: Kept,
        pools: Callable[[], Iterable[CompiledPool]],
        clock: Callable[[], float],
    ) -> None:
        self.kept = kept
        self.unread = Unread(placer, clock)
        self.fields: tuple[str, ...] = ()
        """Of a body, that may name a session."""
        self.recognises = False
        """Whether a conversation is known by its history."""
        self._placer = placer
        self._counts = counts
        self._bodies = bodies
        self._models = models
        self._prefixes = prefixes
        self._pools = pools
        self._clock = clock

    def place(self, pool: CompiledPool, arrival: Arrival) -> Decision | None:
        """On its way, where it is placed at all."""
        now = self._clock()
        if arrival.given and arrival.adapter is None:
            decision = self._placer.staying.begin(pool, arrival.key, arrival.size_bytes, now)
            if decision is not None:
                self._counts.decisions[pool.pool.id, decision.reason] += 1
                return decision
        decision = self._placer.place(pool, arrival, now)
        if decision is not None:
            self.begin(pool, decision)
        return decision

    def place_given(self, pool: CompiledPool, key: SessionKey, adapter: str | None) -> Decision | None:
        decision = self._placer.place(pool, Arrival(key, True, adapter=adapter), self._clock())
        self.begin(pool, decision)
        return decision

    def place_said(
        self, pool: CompiledPool, key: SessionKey, said: Said, size_bytes: int, adapter: str | None
    ) -> tuple[SessionKey, Decision | None]:
        """By the id that the body names, else by its history, else as a new session."""
        now = self._clock()
        decision: Decision | None
        if said.session is not None:
            key = key.named(header_safe(said.session))
            decision = self._placer.place(pool, Arrival(key, True, size_bytes, adapter, prompt=said.prompt), now)
        elif said.history is not None:
            arrival = Arrival(key, False, size_bytes, adapter, prompt=said.prompt)
            recognition, decision = self._placer.place_by_history(pool, arrival, said.history, now)
            self._counts.keyless[recognition] += 1
        else:
            decision = self._placer.place(pool, Arrival(key, False, size_bytes, adapter, prompt=said.prompt), now)
        if said.prompt is not None and decision is not None:
            self._placer.prefixes.placed(*decision.place, said.prompt, now)
        self.begin(pool, decision)
        if self._models.chooses:
            minted = decision.session if decision is not None else None
            self._models.note(pool, key if minted is None else key.named(minted))
        return key, decision

    def place_first(
        self, pool: CompiledPool, key: SessionKey, body: bytes, adapter: str | None
    ) -> tuple[Prompt | None, Decision | None]:
        now = self._clock()
        try:
            prompt = read(body, (), self._placer.seed(pool.pool.id, key.tenant)).prompt
        except NotAnObjectError:
            prompt = None
        decision = self._placer.place(pool, Arrival(key, True, len(body), adapter, prompt=prompt), now)
        if prompt is not None and decision is not None:
            self._placer.prefixes.placed(*decision.place, prompt, now)
        self.begin(pool, decision)
        return prompt, decision

    def place_after(self, pool: CompiledPool, key: SessionKey, given: bool, previous: bytes) -> Decision | None:
        now = self._clock()
        holder = self.kept.holder(pool, key.tenant, previous, now)
        if holder is None:
            return None
        decision = self._placer.place_with(pool, Arrival(key, given), holder, now)
        self.begin(pool, decision)
        return decision

    def begin(self, pool: CompiledPool, decision: Decision | None) -> None:
        self._counts.decisions[pool.pool.id, decision.reason if decision else "none"] += 1
        if decision is not None:
            self._placer.begun(decision, self._clock())

    def sent(self, pool: CompiledPool, decision: Decision, prompt: Prompt, body: bytes) -> None:
        if self._prefixes is not None:
            sent = Sent(decision.place, decision.endpoints[0], pool.pool.served_name, prompt, body)
            self._prefixes.learner.offer(sent)

    def release(self, decision: Decision | None, closing: SessionKey | None) -> None:
        """The id of a session that is closed may lead to any pool, so it is forgotten in all."""
        if decision is not None:
            self._placer.load.end(decision.place, decision.uncached, decision.tokens)
        if closing is not None:
            self.close(self._pools(), closing, "client")

    def close(self, pools: Iterable[CompiledPool], key: SessionKey, by: str) -> None:
        """The session has ended in these pools: nothing of it is remembered."""
        if self._placer.close(pools, key, self._clock()):
            self._counts.closed[by] += 1
        self._ended(key)

    def forget(self, pool_id: str, key: SessionKey) -> None:
        if self._placer.forget(pool_id, key, self._clock()):
            self._counts.closed["engine"] += 1
        self._ended(key)

    def remember(self, pool_id: str, key: SessionKey, replica_id: str) -> None:
        self._counts.learned[pool_id] += 1
        self._placer.remember(pool_id, key, replica_id, self._clock())

    def remember_response(self, pool_id: str, tenant: bytes, response_id: bytes, replica_id: str) -> None:
        self._counts.learned[pool_id] += 1
        self.kept.remember(pool_id, tenant, response_id, replica_id, self._clock())

    def refusal(self, pools: Iterable[CompiledPool], tenant: bytes, response_id: bytes) -> Reject | None:
        """Of what is another tenant's, in the engine's words: nobody learns that it exists."""
        if not self.kept.anothers(pools, tenant, response_id, self._clock()):
            return None
        self._counts.rejected["response"] += 1
        return Reject(404, f"Response with id '{response_id.decode('latin-1')}' not found.")

    def read(self, pool: CompiledPool, key: SessionKey, body: bytes) -> Said:
        if not self.recognises:
            return Said()
        return read(body, self.fields, self._placer.seed(pool.pool.id, key.tenant))

    def _ended(self, key: SessionKey) -> None:
        self._bodies.forget(key)
        self._models.forget(key)
