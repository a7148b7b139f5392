"""Everything that is done to a request's body, in one place and one order: the hint is checked, the alias becomes the
model's name, lost system texts come back, the conversation is repaired and trimmed, the tenant's salt is put in.

A body that needs none of it leaves byte for byte as it came; one that nobody can read goes on unchanged, since the
engine's own error says what is wrong with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from homing.core.chat.body import Members, NotAnObjectError, encode, may_be_read_elsewhere, members, named
from homing.core.chat.repairs.names import Repair
from homing.core.chat.shapes import Shape, shape_of
from homing.core.chat.turn import Turns
from homing.core.config import Config, PoolConfig
from homing.core.config.models import Auto
from homing.core.context.budget import Budget
from homing.core.context.lost import Finding, Sessions, Spoken, judge
from homing.core.context.plan import Need, Plan, among, opening
from homing.core.context.salt import salt
from homing.core.fleet import Fleet, Pool
from homing.core.history import history_of
from homing.core.policy import lesser
from homing.core.session import SessionKey
from homing.ext_proc.events import BodyAnswer, Reject, RequestHeadersReceived, SetHeaders
from homing.ext_proc.proof import Offer, Proof

UNCHANGED = BodyAnswer()
REPAIRS = "x-homing-repairs"
OBSERVED = b"observed:"
"""In front of the names of what would have been done."""


class Counters(Protocol):
    """Where the picker counts what is done to bodies."""

    repairs: Counter[tuple[str, str]]
    observed_repairs: Counter[tuple[str, str]]
    system_texts: Counter[tuple[str, str]]
    rejected: Counter[str]


class Bodies:
    """Makes the work on each request's body. `secret`: what salts and digests are made with; `clock` in seconds."""

    def __init__(self, secret: bytes, clock: Callable[[], float], counts: Counters, proof: Proof) -> None:
        self.counts = counts
        self.proof = proof
        self.sessions = Sessions(0.0, 0)
        self.secret = secret
        self.clock = clock
        self._pools: Mapping[str, PoolConfig] = {}
        self._plans: dict[str, tuple[Pool, Plan]] = {}
        self._auto: tuple[PoolConfig, ...] = ()
        self._lengths: Mapping[str, int] = {}
        self._auto_budget: Budget | None = None
        self.first_sight: Callable[[bytes], Awaitable[object] | None] | None = None
        """Where there is a store that may know what a session has said: has it read, or says that it is not worth
        asking."""

    def configure(self, config: Config) -> None:
        """What the file says, as of now."""
        self._pools = {pool.id: pool for pool in config.pools}
        self._plans = {}
        self._auto = tuple(p for p in config.pools if config.auto is not None and p.id in config.auto.pools)
        self._auto_budget = _strictest(self._auto, self._lengths)
        self.proof.configure(config)
        self.sessions.limit(config.sessions.ttl_s, config.sessions.max)

    def adopt(self, fleet: Fleet) -> None:
        """The fleet as of now."""
        self._lengths = {pool.id: pool.max_model_len for pool in fleet.pools}
        self._auto_budget = _strictest(self._auto, self._lengths)

    def plan(self, pool: Pool) -> Plan:
        """A pool that the file does not have is served as if nothing were said of it."""
        known = self._plans.get(pool.id)
        if known is not None and (known[0] is pool or _alike(known[0], pool)):
            return known[1]
        config = self._pools.get(pool.id)
        plan = (
            Plan.of(config, pool.template, pool.max_model_len, pool.mode)
            if config is not None
            else Plan(mode=lesser("route", pool.mode))
        )
        self._plans[pool.id] = (pool, plan)
        return plan

    def leaves(self, pool: Pool) -> bool:
        """Whether a request that names its session and no alias is placed, and its body never read."""
        plan = self.plan(pool)
        return plan.places and not plan.observes and not plan.needs and not self.proof.asks(pool)

    def forget(self, key: SessionKey) -> None:
        """The session has ended."""
        self.sessions.forget(self.digest(key))

    def digest(self, key: SessionKey) -> bytes:
        """Of a session, whatever its pool."""
        return key.digest("", self.secret)

    def work(self, pool: Pool, request: RequestHeadersReceived, key: SessionKey, auto: Auto | None = None) -> Work:
        """What is to be done for one request. `key`: as its headers say it. `auto`: it left the choice of the model to
        us, so it has to fit every model that the session may come to."""
        plan = self.plan(pool)
        if auto is None:
            return Work(self, pool, plan, request)
        if plan.mode == "full" and self._auto_budget is not None:
            plan = replace(plan, budget=self._auto_budget)
        return Work(self, pool, plan, request, moved=pool.id != auto.default)


class Work:
    """The body of one request. `wanted`: whether it has to be read. `moved`: the request goes to another pool than its
    route says, and Envoy is to choose anew."""

    __slots__ = ("_bodies", "_given", "_hint", "_model", "_offer", "_path", "_plan", "_pool", "_sampled", "_shape",
                 "moved", "needs")  # fmt: skip

    def __init__(
        self, bodies: Bodies, pool: Pool, plan: Plan, request: RequestHeadersReceived, moved: bool = False
    ) -> None:
        self.moved = moved
        self._bodies, self._pool, self._plan = bodies, pool, plan
        self._model = request.model
        self._given = "x-homing-given" in request.headers
        self._hint = "x-homing-model" in request.headers
        self._path = request.headers.get(":path", b"")
        self._sampled = plan.places and bodies.proof.samples(pool)
        self._shape = shape_of(self._path) if plan.needs or self._sampled else None
        self.needs = self._needs()
        self._offer: Offer | None = None

    @property
    def aliased(self) -> bool:
        return self._model in self._pool.aliases

    @property
    def wanted(self) -> bool:
        return self.aliased or self.moved or bool(self.needs) or self._asked_for_proof

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def compares(self) -> bool:
        """Whether a store may know what a session has said before, which is to be compared."""
        return self._bodies.first_sight is not None and Need.LOST_SYSTEM in self.needs

    def wait(self, key: SessionKey, named_in_body: bool = False) -> Awaitable[object] | None:
        """What has to be read first: what a session has said before, that this picker has not heard of."""
        bodies = self._bodies
        if bodies.first_sight is None or not self.compares or not (self._given or named_in_body):
            return None
        digest = bodies.digest(key)
        if not self._plan.looks_for_lost(key.text) or bodies.sessions.get(digest, bodies.clock()):
            return None
        return bodies.first_sight(digest)

    def rewrite(self, body: bytes, key: SessionKey, named_in_body: bool = False) -> BodyAnswer | Reject:
        """`key`: the session's, as it is known by now; `named_in_body`: the body said it."""
        answer = self._rewritten(body, key, named_in_body)
        if isinstance(answer, BodyAnswer):
            repaired = bool(answer.set_headers) and not self._plan.observes
            if (repaired or self._sampled) and self._shape is not None:
                offer = Offer(self._pool, self._path, body, answer.body or body, repaired)
                self._offer = offer if self._bodies.proof.hold(offer) else None
        return answer

    def close(self) -> None:
        """The request has ended: what it said may be looked for in its prompt."""
        if self._offer is not None:
            self._bodies.proof.offer(self._offer)
            self._offer = None

    @property
    def _asked_for_proof(self) -> bool:
        return self._sampled and self._shape is not None and self._bodies.proof.asks(self._pool)

    def _rewritten(self, body: bytes, key: SessionKey, named_in_body: bool) -> BodyAnswer | Reject:
        if not (self.needs or self._hint or self.moved or self._pool.aliases):  # read for its history, by somebody else
            return UNCHANGED
        try:
            before = members(body)
        except NotAnObjectError:
            return self._unread(body)
        said = named(before)
        if self._hint and not self.moved and said is not None and said not in self._pool.names:
            return self._rejected("hint", f"The header x-homing-model says {self._model}, the body says {said}.")
        after: Members = before
        headers: SetHeaders = ()
        if self._shape is not None and (turns := self._shape.read(before)) is not None:
            conversation = Conversation(self._bodies, self._pool, self._plan, self._shape)
            talked = conversation.through(body, before, turns, key, self._given or named_in_body)
            if isinstance(talked, str):
                return self._rejected("context_length", talked)
            after, headers = talked
        renames = said in self._pool.aliases or self.aliased or self.moved
        if renames and said != self._pool.served_name:
            after = {**after, "model": msgspec.Raw(msgspec.json.encode(self._pool.served_name))}
        if Need.SALT in self.needs:
            own = salt(key.tenant, self._pool.id, self._bodies.secret)
            after = {**after, "cache_salt": msgspec.Raw(msgspec.json.encode(own))}
        return BodyAnswer(None if after is before else encode(after), headers)

    def _unread(self, body: bytes) -> BodyAnswer | Reject:
        """The engine says what is wrong with it. Where it might find nothing wrong, no salt is no isolation."""
        if Need.SALT in self.needs and may_be_read_elsewhere(body):
            return self._rejected(
                "isolation", "This model needs a body of plain JSON in UTF-8: tenants are kept apart."
            )
        return BodyAnswer()

    def _needs(self) -> frozenset[Need]:
        """Only conversations are repaired and measured; a salt goes into whatever a model reads."""
        wanted = self._plan.needs
        if not wanted or self._shape is not None:
            return wanted
        return wanted & {Need.SALT}

    def _rejected(self, why: str, message: str) -> Reject:
        self._bodies.counts.rejected[why] += 1
        return Reject(400, message)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The steps on the turns of one request."""

    bodies: Bodies
    pool: Pool
    plan: Plan
    shape: Shape

    def through(
        self, body: bytes, before: Members, turns: Turns, key: SessionKey, known: bool
    ) -> tuple[Members, SetHeaders] | str:
        """The body's members with the turns as they are to be, and what was done; or why the request is refused.
        `known`: the session was named by the client. The same members where there was nothing to do."""
        made: Turns = turns
        done: list[Repair] = []
        if known and self.plan.looks_for_lost(key.text):
            made = self._found(body, before, made, key, done)
        budget, repairs = self.plan.budget, self.plan.repairs
        # before system texts become part of questions, since these may go and those may not
        if budget is not None and budget.trims and (fitting := budget.trim(before, made)) is not made:
            made = fitting
            done.append(Repair.TRIM)
        if repairs is not None and among(self.plan.share, opening(turns)):
            made, repaired = repairs.apply(made)
            done += repaired
        if budget is not None and not self.plan.observes and (over := budget.over(before, made)) is not None:
            return over.message
        headers = self._told(done)
        return (before if made is turns or self.plan.observes else self.shape.write(before, made)), headers

    def _found(self, body: bytes, before: Members, turns: Turns, key: SessionKey, done: list[Repair]) -> Turns:
        """The turns, with the session's system texts in front where these were lost and are to be restored."""
        bodies, restores = self.bodies, self.plan.lost_system == "restore"
        history = history_of(body, bodies.secret)
        if history is None:
            return turns
        digest, now = bodies.digest(key), bodies.clock()
        judgement = judge(bodies.sessions.get(digest, now), Spoken.of(before, turns, history), restores)
        if judgement.threads:
            bodies.sessions.put(digest, judgement.threads, now)
        finding = judgement.finding
        if judgement.lost and restores:
            turns = [*judgement.lost, *turns]
            done.append(Repair.RESTORE_SYSTEM)
            finding = finding if self.plan.observes else Finding.RESTORED
        bodies.counts.system_texts[self.pool.id, finding] += 1
        return turns

    def _told(self, done: list[Repair]) -> SetHeaders:
        counts = self.bodies.counts
        counter = counts.observed_repairs if self.plan.observes else counts.repairs
        for repair in done:
            counter[self.pool.id, repair] += 1
        if not done:
            return ()
        names = ",".join(done).encode()
        return ((REPAIRS, OBSERVED + names if self.plan.observes else names),)


def _alike(one: Pool, other: Pool) -> bool:
    """Whether the same is to be done with their bodies."""
    said = [(pool.template, pool.max_model_len, pool.mode) for pool in (one, other)]
    return said[0] == said[1]


def _strictest(pools: Sequence[PoolConfig], lengths: Mapping[str, int]) -> Budget | None:
    """The smallest limit of the pools that a session may come to by itself."""
    budgets = [Budget.of(pool.context, lengths.get(pool.id, 0)) for pool in pools]
    return min((budget for budget in budgets if budget is not None), key=lambda budget: budget.limit, default=None)
