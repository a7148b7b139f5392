"""The picker: what one request's headers say, what placement makes of it, and what became of it.

Everything here is synchronous and runs on one event loop; the fleet is replaced whole.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from hashlib import blake2b

from homing.core import responses
from homing.core.config import Config
from homing.core.fleet import Fleet
from homing.core.outliers import Tallies
from homing.core.placement.counters import Counters
from homing.core.placement.decision import Arrival
from homing.core.placement.home import Placer
from homing.core.placement.kept import Kept
from homing.core.placement.load import Place
from homing.core.placement.pools import EMPTY, CompiledFleet, CompiledPool
from homing.core.session import KEY_ID_BYTES, SessionKey
from homing.ext_proc.body import Bodies, Work
from homing.ext_proc.counts import Counts
from homing.ext_proc.events import Event, Headers, Reject, RequestHeadersReceived, ResponseHeadersReceived, SetHeaders
from homing.ext_proc.exchange import Reading, Stage
from homing.ext_proc.first_turn import FirstTurn, worth_reading
from homing.ext_proc.hearing import Hearing, TtftSink
from homing.ext_proc.identity import GIVEN, NO_SEALS, Caller, Identity, Seals
from homing.ext_proc.learning import LEARN, SESSION, ResponseLearner, learn, lesson
from homing.ext_proc.models import Models
from homing.ext_proc.outcomes import Outcome
from homing.ext_proc.placing import Placing
from homing.ext_proc.prefixes import Prefixes
from homing.ext_proc.proof import Proof
from homing.ext_proc.response_requests import ResponsesRequest, ResponseVisit
from homing.ext_proc.routed import NEW_SESSION, RoutedRequest, Settled, UnnamedRequest
from homing.ext_proc.settling import Settling, length

CONVERSATION_PATHS = (b"/v1/chat/completions", b"/v1/messages", responses.PATH)


class Picker:
    """Decides for one Envoy. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        placer: Placer,
        clock: Callable[[], float],
        ttft: TtftSink,
        identity: Identity | None = None,
        prefixes: Prefixes | None = None,
        chance: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`chance`: a number from 0 to 1, for what is done to a sample of requests."""
        self.placer = placer
        self.counts = Counts()
        self.fleet = EMPTY
        self.version: str | None = None
        self.identity = identity or Identity(clock, bytes)  # without seals it asks neither
        self._clock = clock
        self._ttft = ttft
        self._prefixes = prefixes
        secret = blake2b(placer.seed("bodies", b""), digest_size=32).digest()
        self.proof = Proof(self.counts, chance)
        self.bodies = Bodies(secret, clock, self.counts, self.proof)
        self.models = Models(secret, clock)
        self.kept = Kept(placer, lambda: self.identity.tenant_header is not None)
        self.placing = Placing(
            placer, self.counts, self.bodies, self.models, prefixes, self.kept, lambda: self.fleet.by_id.values(), clock
        )
        self.unread = self.placing.unread
        self._settling = Settling(placer, self.identity.key, self.counts, clock)
        self._hearing = Hearing(placer, self.counts, ttft, clock)

    def configure(self, config: Config, seals: Seals = NO_SEALS) -> None:
        """What the file says of sessions and tenants, as of now."""
        sessions = config.sessions
        if self._prefixes is not None:
            self._prefixes.configure(config)
        self.placer.homes.limit(sessions.ttl_s, sessions.max)
        self.placer.chains.limit(sessions.ttl_s, sessions.max)
        # an id in the body is the client's own: where ids are signed it names nothing
        self.placing.fields, self.placing.recognises = () if seals.signed else sessions.body_fields, sessions.history
        self.bodies.configure(config)
        self.placer.scales.configure({pool.id: pool.placement.settings() for pool in config.pools})
        self.models.configure(config)
        tenants = config.tenants
        header = tenants.header if tenants is not None and tenants.trusted else None
        self.identity.configure(header, sessions.cookie, seals)
        self.placer.finish = self.identity.sign if self.identity.signs else None
        self._settling.pools = self._plain_pools()

    def adopt(self, fleet: Fleet) -> None:
        """The fleet as of now. Pools that did not change keep their tables; who is gone leaves the metrics."""
        before, self.fleet = self.fleet, CompiledFleet.of(fleet, self.fleet)
        self.version = fleet.version
        self.bodies.adopt(fleet)
        self._settling.pools = self._plain_pools()
        if self._prefixes is not None:
            self._prefixes.adopt(fleet)
        for place in before.fit() - self.fleet.fit():  # when it is back it is most likely a new process, and cold
            self.placer.prefixes.forget(place)
        known = before.epochs()
        for (pool_id, replica_id), epoch in self.fleet.epochs().items():
            if known.get((pool_id, replica_id), epoch) != epoch:
                self.placer.restarted(self.fleet.by_id[pool_id], replica_id, self._clock())
        self._ease(before)
        for place in before.places() - self.fleet.places():
            self._ttft.forget(place)
            self.placer.load.forget(place)
            for key in [key for key in self.counts.outcomes if key[:2] == place]:
                del self.counts.outcomes[key]

    def _ease(self, before: CompiledFleet) -> None:
        """Who comes, or comes back, begins slowly; but not all of a fleet that was not known."""
        was, now, easing = before.open(), self.fleet.open(), self.placer.scales.easing
        for place in was - now:
            easing.gone(place)
        for place in now - was:
            if any(known[0] == place[0] for known in was):
                easing.came(place, self._clock())

    def route(
        self, request: RequestHeadersReceived
    ) -> RoutedRequest | Settled | Reject | Reading[RoutedRequest | Reject]:
        pool = self._pool_of(request)
        if pool is not None and (key := self._settling.usual(request, pool)) is not None:
            if GIVEN not in request.headers:
                if not self.identity.gives_cookies and self._reads(request):
                    work = self.bodies.work(pool.pool, request, key)
                    return UnnamedRequest(self.placing, pool, None, request.model, key, work)
            elif (settled := self._settling.settle(pool, key, length(request.headers))) is not None:
                return settled
        wait = self._to_read(request, pool)
        return self._route(request, pool) if wait is None else Reading(wait, lambda: self._route(request, pool))

    def _plain_pools(self) -> frozenset[str]:
        """Whose usual requests `settling` may decide."""
        if self.models.chooses or self.identity.signs:
            return frozenset()
        settings = self.placer.scales.settings
        return frozenset(
            pool_id
            for pool_id, pool in self.fleet.by_id.items()
            if self.bodies.leaves(pool.pool) and settings(pool_id).reject_above_tokens <= 0
        )

    def _to_read(self, request: RequestHeadersReceived, pool: CompiledPool | None) -> Awaitable[object] | None:
        """Of what the headers name: a session of the client's, or a response."""
        key = self.identity.key(request.headers)
        if (response_id := responses.named_by(request.headers.get(":path", b""))) is not None:
            pools = self.fleet.by_id.values() if pool is None else (pool,)
            return self.unread.of_path(pools, self.kept.keys(key.tenant, response_id))
        named = pool is not None and GIVEN in request.headers and key.session
        return self.unread.of_headers(pool, key) if pool is not None and named else None

    def _pool_of(self, request: RequestHeadersReceived) -> CompiledPool | None:
        """The route rules where it leads to a cluster: own routes may choose by path and name no model."""
        return self.fleet.by_id.get(request.cluster) if request.cluster else self.fleet.pool_for(request.model)

    def _route(self, request: RequestHeadersReceived, pool: CompiledPool | None) -> RoutedRequest | Reject:
        headers, desk = request.headers, self.placing
        caller = self.identity.of(headers)
        key, given = caller.key, caller.given
        self._count_odd(headers, key)
        closing = key if headers.get("x-session-close", b"").lower() == b"true" else None
        if caller.refused:
            self.counts.rejected["session"] += 1
            return Reject(401, "The session id was not issued here, was changed, or has expired.")
        path = headers.get(":path", b"")
        if (response_id := responses.named_by(path)) is not None:
            return self._visit(pool, key, response_id, closing)
        auto = self.models.asked(request) if pool is not None else None
        if auto is not None and pool is not None:
            pool = self.models.held(pool, self.fleet, key, auto)
        if pool is None:  # a list of models, or an unknown one: Envoy's own route answers it
            issued = self._issued(headers, caller)
            return RoutedRequest(desk, None, None, request.model, key, closing=closing, lesson=issued)
        work, expires = self.bodies.work(pool.pool, request, key, auto), headers.get("x-homing-expires")
        if not work.plan.places:
            desk.begin(pool, None)
            return RoutedRequest(desk, pool, None, request.model, key, work, closing)
        if given:
            self.models.note(pool, key)
        if request.has_body and not work.plan.observes and (refusal := self._overloaded(pool)) is not None:
            return refusal
        cookie = caller.cookie
        if request.subset is not None and not work.plan.observes:
            return self._within(pool, request, key, work, closing)
        learns = (lesson(SESSION, key.tenant),) if LEARN in headers else ()
        if key.session and request.has_body and path.partition(b"?")[0].endswith(responses.PATH):
            return ResponsesRequest(desk, pool, request.model, key, given, work, closing, expires, learns, cookie)
        if not given and key.session and self._reads(request):
            return UnnamedRequest(desk, pool, None, request.model, key, work, closing, expires, learns, cookie)
        if given and self._first_prompt(pool, request, key, work):
            return FirstTurn(desk, pool, request.model, key, work, closing, expires, learns, cookie)
        # no id: not through our filters; one minted from nothing would be the same for everybody.
        # no body (a probe, a list): begins no conversation, and Envoy spreads it well enough alone
        placeable = key.session and (given or request.has_body)
        arrival = Arrival(key, given, length(headers), pool.adapter(request.model))
        decision = desk.place(pool, arrival) if placeable else None
        if decision is None:
            desk.begin(pool, None)
            learns = (*learns, *self._issued(headers, caller))
        return RoutedRequest(desk, pool, decision, request.model, key, work, closing, expires, learns, cookie)

    def _first_prompt(self, pool: CompiledPool, request: RequestHeadersReceived, key: SessionKey, work: Work) -> bool:
        """Whether the body is read to place a session that the client named."""
        return (
            not work.plan.observes
            and worth_reading(self.placer, pool, key, length(request.headers), self._clock())
            and self._reads(request)
        )

    def learn(self, answer: ResponseHeadersReceived) -> ResponseLearner | None:
        return learn(answer, self.placing)

    def _visit(
        self, pool: CompiledPool | None, key: SessionKey, response_id: bytes, closing: SessionKey | None
    ) -> ResponseVisit | Reject:
        """To the replica that has the response. An id that nobody knows is the engine's to refuse: the first pool's,
        where there are several."""
        pools = list(self.fleet.by_id.values()) if pool is None else [pool]
        decision, now = None, self._clock()
        if (refusal := self.placing.refusal(pools, key.tenant, response_id)) is not None:
            return refusal
        for candidate in pools:
            if (holder := self.kept.holder(candidate, key.tenant, response_id, now)) is not None:
                pool, decision = candidate, self.placer.visit(candidate, holder)
                break
        pool = pool or next(iter(pools), None)
        if pool is not None:
            self.placing.begin(pool, decision)
        return ResponseVisit(self.placing, pool, decision, None, key, closing=closing)

    def _reads(self, request: RequestHeadersReceived) -> bool:
        """Whether a request without a session is worth its body: one that has a conversation in it."""
        path = request.headers.get(":path", b"").partition(b"?")[0]
        return self.placing.recognises and request.has_body and path.endswith(CONVERSATION_PATHS)

    def _within(
        self,
        pool: CompiledPool,
        request: RequestHeadersReceived,
        key: SessionKey,
        work: Work,
        closing: SessionKey | None,
    ) -> RoutedRequest | Reject:
        """A hop before us allows only some addresses: placed by the headers alone, and nowhere else."""
        given, size_bytes = GIVEN in request.headers, length(request.headers)
        arrival = Arrival(key, given, size_bytes, pool.adapter(request.model), request.subset)
        decision = self.placer.place(pool, arrival, self._clock()) if key.session else None
        self.placing.begin(pool, decision)
        if decision is None:
            self.counts.rejected["subset"] += 1
            return Reject(503, "None of the endpoints that may serve this request is fit to.")
        return RoutedRequest(self.placing, pool, decision, request.model, key, work, closing)

    def _overloaded(self, pool: CompiledPool) -> Reject | None:
        """Where the file asks for it, and every replica has more waiting than it allows."""
        wait_s = self.placer.scales.overloaded(pool, self._clock())
        if wait_s is None:
            return None
        self.counts.rejected["overload"] += 1
        return Reject(429, "Every replica of this model has too much work waiting.", max(1, math.ceil(wait_s)))

    def engine_told(self, place: Place, counters: Counters, before: Counters | None) -> None:
        """A replica's engine was asked for its counters."""
        if counters.restarted(before):
            self.placer.prefixes.forget(place)
        if self._prefixes is not None and counters.cache_tokens:
            self._prefixes.index.resize(place, int(counters.cache_tokens))
        queried, found = counters.since(before)
        self.placer.scales.engine_told(
            place,
            waiting=counters.waiting,
            cache_tokens=counters.cache_tokens,
            queried=queried,
            found=found,
            now=self._clock(),
        )

    def violated(self, stage: Stage, event: Event) -> None:
        self.counts.violations[stage.name.lower()] += 1

    def finished(self, outcome: Outcome) -> None:
        """One entry of Envoy's access log."""
        pool = self.fleet.by_id.get(outcome.pool_id)
        if pool is not None:  # else answered by Envoy itself
            self._hearing.hear(pool, outcome)

    def tallies(self, now: float) -> Tallies:
        """What became of each replica's requests lately."""
        return self._hearing.window.tallies(now)

    def _issued(self, headers: Headers, caller: Caller) -> SetHeaders:
        """The id that goes back with what is not placed, where ids are signed: it has to be one that is taken."""
        if caller.given or not self.identity.signs or not caller.key.session:
            return ()
        key = caller.key.named(self.identity.sign(caller.key.session, caller.key.tenant))
        issued = (("x-session-id", key.session), ("x-homing-key", key.text))
        expires = headers.get("x-homing-expires")
        return issued if expires is None else (*issued, (NEW_SESSION, key.session + b"; Expires=" + expires))

    def _count_odd(self, headers: Headers, key: SessionKey) -> None:
        if (odd := headers.get("x-homing-odd")) is not None:
            self.counts.odd_ids[odd.decode("latin-1")] += 1
        if len(key.session) > KEY_ID_BYTES:
            self.counts.odd_ids["long"] += 1
        if not key.session.isascii():
            self.counts.odd_ids["non_ascii"] += 1
