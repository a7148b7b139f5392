"""150 tenants with a system prompt of 6,000 tokens each, 5 users to a tenant: simulated, with the product's placer.

Caches are the sim's, which are vLLM's by calibration. A first turn names no session, so its body is read and the index
asked; later turns come with the id that was given out, and their bodies are not read.
"""

from __future__ import annotations

import heapq
import json
from array import array
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica
from homing.core.history import Said, read
from homing.core.placement.decision import Arrival, Decision
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.prefix.blocks import chain
from homing.core.prefix.events import Removed, Stored
from homing.core.prefix.index import Index
from homing.core.session import Homes, SessionKey
from homing.sim import prefix_cache as sim
from homing.sim.tokenizer import token_ids

TENANTS, USERS = 150, 5
SYSTEM_TOKENS = 6_000
BLOCK = 64
CACHE_BLOCKS = 400_000 // BLOCK
PREFILL_PER_S = 8_000.0
POOL = CompiledPool.of(Pool("p", "model", replicas=tuple(Replica(f"r{i}", f"10.0.0.{i}:80") for i in range(8))))


@dataclass(slots=True)
class Session:
    tenant: int
    user: int
    turns: int  # still to come
    long: bool
    tokens: list[int]
    id: bytes | None = None
    home: str = ""


@dataclass(slots=True)
class Engine:
    """Prefill is one queue; a turn's blocks are findable once it is through."""

    cache: sim.PrefixCache = field(
        default_factory=lambda: sim.PrefixCache(sim.CacheShape(BLOCK, CACHE_BLOCKS), record_events=True)
    )
    free_at: float = 0.0

    def prefill(self, tokens: list[int], now: float) -> tuple[float, int]:
        """When the first token comes, and how many tokens had to be prefilled."""
        ids, keys = token_ids(tokens), list[bytes]()
        sim.extend_keys(keys, ids, BLOCK)
        found = self.cache.find(keys, len(ids))
        fresh = self.cache.acquire(found, len(keys) - len(found))
        assert fresh is not None
        self.cache.register([*found, *fresh], keys, ids, len(found), len(keys))
        self.cache.release([*found, *fresh])
        uncached = len(ids) - len(found) * BLOCK
        self.free_at = max(now, self.free_at) + uncached / PREFILL_PER_S
        return self.free_at, uncached


@dataclass
class World:
    """`index` is None for a placer that knows nothing of prefixes; `events`: whether engines tell their blocks."""

    index: Index | None
    events: bool
    random: Random = field(default_factory=lambda: Random(7))
    engines: dict[str, Engine] = field(default_factory=lambda: {r.id: Engine() for r in POOL.members})
    prefilled: int = 0
    waits: list[float] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    first_homes: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ties = Random(3)
        homes, chains = Homes(1800.0, 100_000), Chains(1800.0, 100_000)
        self.placer = Placer(homes, chains, Load(), b"s", ties.randrange, self.index)

    def run(self) -> None:
        """Users come over ten minutes; every tenth has a long session."""
        due: list[tuple[float, int, Session | None, Decision | None]] = []
        for number in range(TENANTS * USERS):
            tenant, user = divmod(number, USERS)
            long = self.random.random() < 0.1
            turns = 15 if long else self.random.randint(1, 4)
            session = Session(tenant, user, turns, long, [*system(tenant), *own(number, self.random)])
            heapq.heappush(due, (self.random.uniform(0, 600), number, session, None))
        self.serve(due, count=TENANTS * USERS)

    def serve(self, due: list[tuple[float, int, Session | None, Decision | None]], count: int) -> None:
        while due:
            now, _, session, decision = heapq.heappop(due)
            if session is None:
                assert decision is not None
                self.placer.load.end(decision.place, decision.uncached)
                continue
            decision, first = self.turn(session, now)
            count += 2
            heapq.heappush(due, (first + 3.0, count, None, decision))
            session.turns -= 1
            if session.turns:
                session.tokens += own(count, self.random)
                heapq.heappush(due, (first + 3.0 + self.random.expovariate(1 / 15), count + 1, session, None))

    def turn(self, session: Session, now: float) -> tuple[Decision, float]:
        decision = self.place(session, now)
        self.placer.begun(decision, now)
        engine = self.engines[decision.place[1]]
        first, uncached = engine.prefill(session.tokens, now)
        self.prefilled += uncached
        self.waits.append(first - now)
        self.placer.first_token(POOL, decision.ref, first - now, now)
        self.tell(decision.place[1], engine)
        return decision, first

    def place(self, session: Session, now: float) -> Decision:
        size = 4 * len(session.tokens)
        if session.id is not None:
            key = SessionKey(b"", session.id, b"/" + session.id)
            decision = self.placer.place(POOL, Arrival(key, True, size), now)
            assert decision is not None
            return decision
        fresh = b"%08d" % self.random.randrange(10**8)
        said = prompt(session.tenant, session.user)
        assert said.history is not None
        arrival = Arrival(SessionKey(b"", fresh, b"/" + fresh), False, size, prompt=said.prompt)
        _, decision = self.placer.place_by_history(POOL, arrival, said.history, now)
        assert decision is not None
        session.id, session.home = decision.session, decision.place[1]
        self.sessions.append(session)
        self.first_homes.setdefault(session.tenant, []).append(session.home)
        self.learn(session, said, now)
        return decision

    def learn(self, session: Session, said: Said, now: float) -> None:
        """What the picker does once a prompt is placed."""
        if self.index is None or said.prompt is None:
            return
        self.index.placed("p", session.home, said.prompt, now)
        if self.index.unlearned("p", said.prompt) >= 512:
            chains = {BLOCK: array("Q", chain(session.tokens, BLOCK))}
            self.index.pool("p").learned.learn(said.prompt, chains, len(session.tokens))

    def tell(self, replica: str, engine: Engine) -> None:
        for event in engine.cache.drain_events():
            if self.index is not None and self.events:
                self.index.pool("p").blocks.apply(replica, translated(event))

    @property
    def share_of_prefix(self) -> float:
        """Of a tenant's second and later users, how many began where one before them had."""
        later = [home in homes[:i] for homes in self.first_homes.values() for i, home in enumerate(homes) if i]
        return sum(later) / len(later)

    @property
    def mean_wait_s(self) -> float:
        """To the first token."""
        return sum(self.waits) / len(self.waits)

    def imbalance(self, *, long: bool) -> float:
        """The most sessions that began at one replica against the mean; of all, or of the long ones."""
        homes = Counter(session.home for session in self.sessions if session.long or not long)
        return max(homes.values()) * len(POOL.members) / homes.total()


def system(tenant: int) -> range:
    return range(tenant * SYSTEM_TOKENS, (tenant + 1) * SYSTEM_TOKENS)


def own(number: int, random: Random) -> range:
    """What one turn adds: nobody else's tokens."""
    begins = TENANTS * SYSTEM_TOKENS + number * 1000
    return range(begins, begins + random.randint(100, 600))


def prompt(tenant: int, user: int) -> Said:
    text = f"tenant {tenant}: " + "x" * (4 * SYSTEM_TOKENS)
    messages = [{"role": "system", "content": text}, {"role": "user", "content": f"I am user {user}, please help"}]
    return read(json.dumps({"messages": messages}).encode(), (), b"seed")


def translated(event: sim.CacheEvent) -> Stored | Removed:
    if isinstance(event, sim.Stored):
        parent = low(event.parent) if event.parent else None
        return Stored([low(key) for key in event.keys], parent, list(event.tokens), BLOCK)
    assert isinstance(event, sim.Removed)
    return Removed([low(key) for key in event.keys])


def low(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


@pytest.fixture(scope="module")
def blind() -> World:
    world = World(None, events=False)
    world.run()
    return world


@pytest.mark.parametrize("events", [False, True], ids=["sent", "said"])
def test_a_tenants_users_begin_where_its_prompt_is_and_nothing_piles_up(blind: World, events: bool):
    world = World(Index(), events)
    world.run()
    assert blind.share_of_prefix < 0.4
    assert world.share_of_prefix > 0.95
    assert world.prefilled < 0.5 * blind.prefilled
    assert world.mean_wait_s < 0.5 * blind.mean_wait_s
    assert world.imbalance(long=False) < 1.25
    assert world.imbalance(long=True) < 1.75  # of 78, by chance it is 1.5
