"""The rules of others, as they are published. Each is ONE placer that sees every replica's requests in flight, and the
cache-aware one every cache as it is: the best that each could be. Only `kv_aware_8` is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from zlib import crc32

from bench.placement.engine import Engine, Request, Running
from homing.core.hashing import Maglev, Ring, Table, minimum_ring_size


class Rule:
    """What they have in common. A session that must go on elsewhere does so at random."""

    name = ""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.engines: Sequence[Engine] = ()
        self.home: dict[str, Engine] = {}

    def members(self, engines: Sequence[Engine], now: float) -> None:
        self.engines = engines
        self.home = {session: e for session, e in self.home.items() if e in engines}

    def pick(self, request: Request, now: float) -> Engine:
        raise NotImplementedError

    def again(self, request: Request, failed: Engine, now: float) -> Engine:
        chosen = self.random.choice([e for e in self.engines if e.alive])
        self.home[request.session] = chosen
        return chosen

    def began(self, running: Running, now: float) -> None: ...

    def ended(self, running: Running, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def least(self) -> Engine:
        fewest = min(e.in_flight for e in self.engines)
        return self.random.choice([e for e in self.engines if e.in_flight == fewest])


class RoundRobin(Rule):
    name = "round_robin"
    _next = 0

    def pick(self, request: Request, now: float) -> Engine:
        self._next += 1
        return self.engines[self._next % len(self.engines)]


class LeastRequest(Rule):
    name = "least_request"

    def pick(self, request: Request, now: float) -> Engine:
        return self.least()


class Hashed(Rule):
    """By Envoy's ring."""

    name = "ring"

    def members(self, engines: Sequence[Engine], now: float) -> None:
        super().members(engines, now)
        self.table = self.build([(e.name, 1) for e in engines])

    def build(self, hosts: list[tuple[str, int]]) -> Table:
        return Ring(hosts, minimum_ring_size([1] * len(hosts)))

    def walk(self, request: Request) -> Iterator[Engine]:
        return (self.engines[i] for i in self.table.walk(request.session.encode()))

    def pick(self, request: Request, now: float) -> Engine:
        return next(self.walk(request))

    def again(self, request: Request, failed: Engine, now: float) -> Engine:
        return next(e for e in self.walk(request) if e.alive)


class MaglevHashed(Hashed):
    name = "maglev"

    def build(self, hosts: list[tuple[str, int]]) -> Table:
        return Maglev(hosts)


class BoundedRing(Hashed):
    """Consistent hashing with bounded loads: the next on the ring while the owner has more than its share."""

    name = "bounded_ring"
    factor = 1.25

    def pick(self, request: Request, now: float) -> Engine:
        mean = (sum(e.in_flight for e in self.engines) + 1) / len(self.engines)
        home = self.home.get(request.session)
        if home is not None and home.in_flight <= max(2, 2 * self.factor * mean):
            return home
        chosen = next((e for e in self.walk(request) if e.in_flight + 1 <= max(1, self.factor * mean)), self.least())
        self.home[request.session] = chosen
        return chosen


class StickyLeast(Rule):
    name = "sticky_least"

    def pick(self, request: Request, now: float) -> Engine:
        home = self.home.get(request.session)
        if home is None:
            home = self.home[request.session] = self.least()
        return home


class CacheAware(Rule):
    """Cache-aware routing by a tree of prefixes, with SGLang's thresholds; here it sees the caches themselves."""

    name = "cache_aware"

    def pick(self, request: Request, now: float) -> Engine:
        loads = [e.in_flight for e in self.engines]
        if max(loads) - min(loads) > 64 and max(loads) > 1.5 * min(loads):
            return min(self.engines, key=lambda e: e.in_flight)
        held, best = max(((e.match(request), e) for e in self.engines), key=lambda pair: pair[0])
        if held > 0.3 * request.tokens:
            return best
        return min(self.engines, key=lambda e: e.cached_blocks)


class KvAware(Rule):
    """The least of what would be computed and what is decoded already, both in tokens, as Dynamo's router and
    vllm-router's kv_aware have it; here it sees the caches themselves, and what is at work."""

    name = "kv_aware"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._busy: dict[str, float] = {}
        self._waiting: dict[int, tuple[Running, int]] = {}

    def pick(self, request: Request, now: float) -> Engine:
        waiting = dict.fromkeys((e.name for e in self.engines), 0)
        for running, uncached in self._waiting.values():
            if running.first_token is None:
                waiting[running.replica.name] = waiting.get(running.replica.name, 0) + uncached
        costs = [
            (waiting[e.name] + request.tokens - e.match(request) + self._busy.get(e.name, 0.0), i)
            for i, e in enumerate(self.engines)
        ]
        return self.engines[min(costs)[1]]

    def began(self, running: Running, now: float) -> None:
        engine, request = running.replica, running.request
        self._waiting[id(running)] = (running, request.tokens - engine.match(request))
        self._busy[engine.name] = self._busy.get(engine.name, 0.0) + request.tokens

    def ended(self, running: Running, now: float) -> None:
        self._waiting.pop(id(running), None)
        self._busy[running.replica.name] -= running.request.tokens


class Eight(Rule):
    """Eight placers with the rule of `kv_aware`. They share nothing, as its routers do: each sees the caches, by their
    events, and of the load what it sent itself. Sessions are shared out among them by a hash."""

    name = "kv_aware_8"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._placers = [KvAware(seed) for _ in range(8)]

    def members(self, engines: Sequence[Engine], now: float) -> None:
        super().members(engines, now)
        for placer in self._placers:
            placer.members(engines, now)

    def pick(self, request: Request, now: float) -> Engine:
        return self._asked(request).pick(request, now)

    def began(self, running: Running, now: float) -> None:
        self._asked(running.request).began(running, now)

    def ended(self, running: Running, now: float) -> None:
        self._asked(running.request).ended(running, now)

    def _asked(self, request: Request) -> KvAware:
        return self._placers[crc32(request.session.encode()) % len(self._placers)]


RULES = (RoundRobin, LeastRequest, Hashed, MaglevHashed, StickyLeast, BoundedRing, CacheAware, KvAware, Eight)
