"""The product's placer as a contender: as many as there are pickers, each with what it would know in production.

Requests are shared out to the pickers by their session, as Envoy does it, and ids are minted to fit. Each engine is
asked every second, outcomes come up to half a second after the answer's end, all of them to the first picker (Envoy has
one stream for its access log).

As by default, the body of a request without an id is read, and that of the first turn of a session that its client
named, so pickers know which prompts were sent where; of later turns with an id there are headers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from random import Random
from uuid import UUID

from bench.placement.engine import BLOCK, Engine, Request, Running
from bench.placement.exchange import Exchange
from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica
from homing.core.history import History
from homing.core.placement.decision import Arrival, Decision
from homing.core.placement.home import Placer
from homing.core.placement.load import Load, Place
from homing.core.placement.pools import CompiledPool
from homing.core.placement.settings import Settings
from homing.core.prefix.index import Index
from homing.core.prefix.prompt import Prompt
from homing.core.session import Homes, SessionKey
from homing.ext_proc.first_turn import worth_reading
from homing.ext_proc.sharding import shard

POOL = "pool"
MARKED_BLOCKS = 2
"""A long message has a mark every 1,024 tokens (`core.prefix.prompt`)."""


class Caches:
    """The prefix index as KV events make it: what the caches hold of the prompt that is being placed."""

    def __init__(self) -> None:
        self.engines: Sequence[Engine] = ()
        self.looked_at: Request | None = None

    def held(self, pool_id: str, prompt: Prompt, now: float) -> Mapping[str, int]:
        request = self.looked_at
        assert request is not None
        return {e.name: e.match(request) for e in self.engines}

    def placed(self, pool_id: str, replica_id: str, prompt: Prompt, now: float) -> None: ...

    def forget(self, place: Place) -> None: ...


class Homing:
    """`exact`: all bodies are read, and the prefix index knows every cache, as KV events tell it."""

    def __init__(
        self,
        placers: int = 1,
        *,
        exact: bool = False,
        settings: Settings | None = None,
        exchange: bool = True,
        seed: int = 0,
    ) -> None:
        self.name = f"homing_{placers}" + ("_index" if exact else "")
        self._random = Random(seed)
        self._exact = exact
        self._caches = Caches()
        self.placers = [self._placer() for _ in range(placers)]
        addresses = [f"127.0.0.1:{9000 + i}" for i in range(placers)]
        first = shard(addresses, addresses[0])
        for i, placer in enumerate(self.placers):
            placer.shard = replace(first, picker=i) if first is not None else None
            placer.scales.configure({POOL: settings or Settings()})
        self._exchange = Exchange(self.placers if exchange and placers > 1 else ())
        self._told: dict[str, tuple[int, int]] = {}  # what each engine counted up to now
        self._names: dict[str, bytes] = {}  # the ids that sessions were given
        self._decisions: dict[int, tuple[Placer, Decision]] = {}
        self._pending: tuple[Placer, Decision] | None = None
        self._outcomes: list[tuple[Running, Decision, float]] = []
        self._ticks = 0

    def _placer(self) -> Placer:
        random = Random(self._random.random())
        homes, chains = Homes(1800, 200_000), Chains(1800, 200_000)
        prefixes = self._caches if self._exact else Index()
        return Placer(homes, chains, Load(), b"bench", random.randrange, prefixes)

    def members(self, engines: Sequence[Engine], now: float) -> None:
        self._engines = {f"{e.name}:80": e for e in engines}
        self._caches.engines = engines
        names = {e.name for e in engines}
        for placer in self.placers:
            for gone in self._told.keys() - names:
                placer.prefixes.forget((POOL, gone))
                placer.scales.easing.gone((POOL, gone))
            for came in names - self._told.keys() if self._told else ():
                placer.scales.easing.came((POOL, came), now)
        replicas = tuple(Replica(e.name, f"{e.name}:80") for e in engines)
        self._pool = CompiledPool.of(Pool(POOL, "model", replicas=replicas))
        self._told = {e.name: self._told.get(e.name, (0, 0)) for e in engines}

    def pick(self, request: Request, now: float) -> Engine:
        self._exchange.hurry(now)
        known = self._names.get(request.session)
        fresh = blake2b(f"{request.session}/{request.turn}".encode(), digest_size=16)
        given = (known is not None or request.named) and not request.keyless
        unknown = request.session if request.named else str(UUID(bytes=fresh.digest()))  # as Envoy makes them
        session = known or unknown.encode()
        key = SessionKey(b"", session, b"/" + session)
        placer = self._asked(key)
        prompt = None
        if self._exact:
            self._caches.looked_at = request
            prompt = Prompt((0,), (request.tokens,))
        elif not given or worth_reading(placer, self._pool, key, request.size_bytes, now):
            prompt = marked(request)
        arrival = Arrival(key, given, request.size_bytes, prompt=prompt)
        if request.keyless:
            _, decision = placer.place_by_history(self._pool, arrival, history(request), now)
        else:
            decision = placer.place(self._pool, arrival, now)
        assert decision is not None
        if prompt is not None:
            placer.prefixes.placed(*decision.place, prompt, now)
        if decision.session is not None and not request.keyless:
            self._names[request.session] = decision.session
        self._pending = (placer, decision)
        return self._engines[decision.endpoints[0]]

    def _asked(self, key: SessionKey) -> Placer:
        """Whom Envoy asks about a session (envoy/pickers.yaml.j2)."""
        sharding = self.placers[0].shard
        owner = sharding.table.owner(key.text) if sharding is not None else 0
        assert owner is not None
        return self.placers[owner]

    def again(self, request: Request, failed: Engine, now: float) -> Engine:
        """Envoy goes on with the list, then with the hash."""
        session = self._names.get(request.session) or request.session.encode()
        order = [self._engines[r.address] for r in self._pool.walk(b"/" + session)]
        told = [self._engines[a] for a in self._pending[1].endpoints] if self._pending else []
        return next(e for e in (*told, *order) if e.alive)

    def began(self, running: Running, now: float) -> None:
        if self._pending is not None:
            placer, decision = self._pending
            self._pending = None
            placer.begun(decision, now)
            self._decisions[id(running)] = (placer, decision)

    def ended(self, running: Running, now: float) -> None:
        if (sent := self._decisions.pop(id(running), None)) is not None:
            placer, decision = sent
            placer.load.end(decision.place, decision.uncached, decision.tokens)
            self._outcomes.append((running, decision, now))

    def tick(self, now: float) -> None:
        self._ticks += 1
        self._exchange.tick(now)
        if self._ticks % 5 == 0:
            self._hear(now)
        if self._ticks % 10 == 0:
            self._ask_engines(now)

    def _hear(self, now: float) -> None:
        for running, decision, _ in self._outcomes:
            name = running.replica.name
            if running.first_token is None or self._pool.member(name) is None:
                continue
            if name == decision.ref.told:
                ttft = running.first_token - running.began
                self.placers[0].first_token(self._pool, decision.ref, ttft, now)
            else:
                for placer in self.placers:
                    placer.served_by(self._pool, decision.ref, name, now)
        self._outcomes.clear()

    def _ask_engines(self, now: float) -> None:
        for engine in self._engines.values():
            if not engine.alive:
                continue
            before = self._told[engine.name]
            self._told[engine.name] = (engine.queried, engine.hit)
            capacity = engine.cache_blocks * BLOCK
            for placer in self.placers:
                if isinstance(placer.prefixes, Index):
                    placer.prefixes.resize((POOL, engine.name), capacity)
                placer.scales.engine_told(
                    (POOL, engine.name),
                    waiting=len(engine.queue),
                    cache_tokens=capacity,
                    queried=engine.queried - before[0],
                    found=engine.hit - before[1],
                    now=now,
                )


def hash_of(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=4).digest())


def marked(request: Request) -> Prompt:
    """The prompt as a picker that reads the body has it; equal beginnings have equal blocks."""
    ends = range(MARKED_BLOCKS - 1, len(request.blocks), MARKED_BLOCKS)
    whole = hash_of(f"{request.session}/{request.turn}".encode())
    return Prompt(
        (*(request.blocks[end] for end in ends), (1 << 62) + whole),
        (*((end + 1) * BLOCK for end in ends), request.tokens),
    )


def history(request: Request) -> History:
    """As the messages of the turns so far would give it."""

    def prompt(turn: int) -> bytes:
        return blake2b(f"{request.session}/{turn}".encode(), digest_size=16).digest()

    earlier = tuple(prompt(turn) for turn in range(request.turn - 1, -1, -1))
    return History(prompt(request.turn), earlier, b"", (), None, ())
