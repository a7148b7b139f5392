"""The picker: what one request's headers say, what placement makes of it, and what became of it.

Everything here is synchronous and runs on one event loop; the fleet is replaced whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from homing.core.chat import NotAnObjectError, model_of, with_model
from homing.core.config import Config
from homing.core.fleet import Fleet
from homing.core.placement.home import Arrival, Decision, Placer, Ref
from homing.core.placement.load import Place
from homing.core.placement.pools import EMPTY, CompiledFleet, CompiledPool
from homing.core.session import LONG_ID_BYTES, SessionKey
from homing.ext_proc.events import BodyAnswer, Event, Headers, Reject, RequestHeadersReceived, SetHeaders
from homing.ext_proc.exchange import Stage
from homing.ext_proc.outcomes import Outcome

DESTINATION = "x-gateway-destination-endpoint"


@dataclass(slots=True)
class Counts:
    """What a picker counts, as plain numbers: read by `metrics`, written without locks on one loop."""

    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)  # (pool, reason)
    odd_ids: Counter[str] = field(default_factory=Counter)  # kind
    violations: Counter[str] = field(default_factory=Counter)  # stage
    rejected: Counter[str] = field(default_factory=Counter)  # reason
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (pool, replica, status class)
    retried: Counter[str] = field(default_factory=Counter)  # pool
    fallbacks: Counter[str] = field(default_factory=Counter)  # pool: requests that Envoy placed alone
    closed: Counter[str] = field(default_factory=Counter)  # by whom
    rehomed: Counter[str] = field(default_factory=Counter)  # pool: homes corrected by an outcome


class TtftSink(Protocol):
    """Where times to the first byte go, in seconds."""

    def observe(self, place: Place, seconds: float) -> None: ...

    def forget(self, place: Place) -> None:
        """The replica is gone for good."""


class Picker:
    """Decides for one Envoy. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        placer: Placer,
        clock: Callable[[], float],
        ttft: TtftSink,
        tenant_header: str | None = None,
    ) -> None:
        self.placer = placer
        self.counts = Counts()
        self.fleet = EMPTY
        self.version: str | None = None
        self.tenant_header = tenant_header
        self._clock = clock
        self._ttft = ttft

    def configure(self, config: Config) -> None:
        """What the file says of sessions and tenants, as of now."""
        self.placer.homes.limit(config.sessions.ttl_s, config.sessions.max)
        tenants = config.tenants
        self.tenant_header = tenants.header if tenants is not None and tenants.trusted else None

    def adopt(self, fleet: Fleet) -> None:
        """The fleet as of now. Pools that did not change keep their tables; who is gone leaves the metrics."""
        before, self.fleet = self.fleet, CompiledFleet.of(fleet, self.fleet)
        self.version = fleet.version
        for place in before.places() - self.fleet.places():
            self._ttft.forget(place)
            for key in [key for key in self.counts.outcomes if key[:2] == place]:
                del self.counts.outcomes[key]

    def route(self, request: RequestHeadersReceived) -> RoutedRequest:
        headers = request.headers
        # The route rules where it leads to a cluster: own routes may choose by path and name no model.
        pool = self.fleet.by_id.get(request.cluster) if request.cluster else self.fleet.pool_for(request.model)
        key = self._session_key(headers)
        self._count_odd(headers, key)
        closing = key if headers.get("x-session-close", b"").lower() == b"true" else None
        if pool is None:  # a list of models, or an unknown one: Envoy's own route answers it
            return RoutedRequest(self, None, None, request.model, closing=closing)
        arrival = Arrival(key, given="x-homing-given" in headers)
        # no id: not through our filters; one minted from nothing would be the same for everybody.
        # no body (a probe, a list): begins no conversation, and Envoy spreads it well enough alone
        placeable = key.session and (arrival.given or request.has_body)
        decision = self.placer.place(pool, arrival, self._clock()) if placeable else None
        self.counts.decisions[pool.pool.id, decision.reason if decision else "none"] += 1
        if decision is not None:
            self.placer.load.begin(decision.place)
        return RoutedRequest(self, pool, decision, request.model, key, headers.get("x-homing-model"), closing)

    def close(self, key: SessionKey) -> None:
        """The client said that it will not come back. The id may lead to any pool, so it is forgotten in all."""
        if self.placer.close(self.fleet.by_id.values(), key):
            self.counts.closed["client"] += 1

    def violated(self, stage: Stage, event: Event) -> None:
        self.counts.violations[stage.name.lower()] += 1

    def finished(self, outcome: Outcome) -> None:
        """One entry of Envoy's access log."""
        pool = self.fleet.by_id.get(outcome.pool_id)
        if pool is None:  # answered by Envoy itself
            return
        self.counts.outcomes[outcome.pool_id, outcome.replica_id, f"{outcome.status // 100}xx"] += 1
        if outcome.attempts > 1:
            self.counts.retried[outcome.pool_id] += 1
        if outcome.ttft_s is not None and outcome.replica_id:
            self._ttft.observe((outcome.pool_id, outcome.replica_id), outcome.ttft_s)
        if outcome.decision == "fallback":
            self.counts.fallbacks[outcome.pool_id] += 1
        elif self._rehome(pool, outcome):
            self.counts.rehomed[outcome.pool_id] += 1

    def _rehome(self, pool: CompiledPool, outcome: Outcome) -> bool:
        ref = Ref.decode(outcome.ref)
        return ref is not None and self.placer.served_by(pool, ref, outcome.replica_id, self._clock())

    def _session_key(self, headers: Headers) -> SessionKey:
        tenant = headers.get(self.tenant_header, b"") if self.tenant_header else b""
        return SessionKey(tenant, headers.get("x-session-id", b""), headers.get("x-homing-key", b""))

    def _count_odd(self, headers: Headers, key: SessionKey) -> None:
        if (odd := headers.get("x-homing-odd")) is not None:
            self.counts.odd_ids[odd.decode("latin-1")] += 1
        if len(key.session) > LONG_ID_BYTES:
            self.counts.odd_ids["long"] += 1
        if not key.session.isascii():
            self.counts.odd_ids["non_ascii"] += 1


class RoutedRequest:
    """One request after its decision: what the exchange tells Envoy, and the slot that it holds."""

    __slots__ = ("_closing", "_decision", "_hint", "_key", "_model", "_picker", "_pool")

    def __init__(
        self,
        picker: Picker,
        pool: CompiledPool | None,
        decision: Decision | None,
        model: str | None,
        key: SessionKey | None = None,
        hint: bytes | None = None,
        closing: SessionKey | None = None,
    ) -> None:
        """`closing`: the session to forget once the request has ended."""
        self._picker = picker
        self._pool = pool
        self._decision = decision
        self._model = model
        self._key = key
        self._hint = hint
        self._closing = closing

    @property
    def set_headers(self) -> SetHeaders:
        decision, key = self._decision, self._key
        if decision is None or key is None:
            return ()
        headers: SetHeaders = (
            (DESTINATION, ",".join(decision.endpoints).encode()),
            ("x-homing-decision", decision.reason.encode()),
            ("x-homing-ref", decision.ref.encode()),
        )
        if decision.session is None:
            return headers
        prefix = key.text[: len(key.text) - len(key.session)]
        return (*headers, ("x-session-id", decision.session), ("x-homing-key", prefix + decision.session))

    @property
    def want_body(self) -> bool:
        """Only a request that names an alias has to be changed."""
        return self._pool is not None and self._model in self._pool.pool.aliases

    def rewrite(self, body: bytes) -> BodyAnswer | Reject:
        """The alias becomes the name that the replicas serve. A hint that the body contradicts is refused: the request
        was routed by it. A body that is no JSON object goes on unchanged; the engine's own error says what is wrong."""
        assert self._pool is not None
        try:
            named = model_of(body)
            if self._hint is not None and named is not None and named != self._model:
                self._picker.counts.rejected["hint"] += 1
                return Reject(400, f"The header x-homing-model says {self._model}, the body says {named}.")
            return BodyAnswer(with_model(body, self._pool.pool.served_name))
        except NotAnObjectError:
            return BodyAnswer()

    def release(self) -> None:
        if self._decision is not None:
            self._picker.placer.load.end(self._decision.place)
        if self._closing is not None:
            self._picker.close(self._closing)
