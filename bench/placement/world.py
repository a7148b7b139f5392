"""Runs one workload with one contender: arrivals, prefills, ends, and what happens to the fleet meanwhile."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bench.placement.engine import Engine, Request, Running

NOTICED_S = 1.0
"""So long until anybody knows that a replica is dead."""


@dataclass(frozen=True, slots=True)
class Change:
    """At `at`, replica number `replica` dies or joins."""

    at: float
    replica: int
    joins: bool


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests by arrival; `speeds` of replicas that are not like the others; what happens to the fleet."""

    name: str
    requests: Sequence[Request]
    replicas: int = 8
    speeds: dict[int, float] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    engine: Callable[[str, float], Engine] = Engine  # by name and speed


class Contender(Protocol):
    """A rule. It sees the engines as far as its kind may."""

    name: str

    def members(self, engines: Sequence[Engine], now: float) -> None:
        """These are the members from now on, as far as anybody knows."""

    def pick(self, request: Request, now: float) -> Engine: ...

    def again(self, request: Request, failed: Engine, now: float) -> Engine:
        """It failed there: where Envoy tries next."""

    def began(self, running: Running, now: float) -> None: ...

    def ended(self, running: Running, now: float) -> None: ...

    def tick(self, now: float) -> None:
        """Every 100 ms."""


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds to the first token, and what it took."""

    p50: float
    p90: float
    p99: float
    mean: float
    hit_rate: float
    imbalance: float  # most loaded replica against the mean, by prompt tokens
    moved: int  # turns elsewhere than the turn before
    served: int
    broken: int  # answers cut by a dying replica
    ends_at: float


class World:
    """Sessions are told apart by name only."""

    def __init__(self, workload: Workload, contender: Contender) -> None:
        self._workload = workload
        self._contender = contender
        joining = {c.replica for c in workload.changes if c.joins}
        self.engines = [workload.engine(f"r{i}", workload.speeds.get(i, 1.0)) for i in range(workload.replicas)]
        for i in joining:
            self.engines[i].alive = False
        self._events: list[tuple[float, int, str, object]] = []
        self._count = 0
        self._ttft: list[float] = []
        self._last: dict[str, str] = {}
        self._moved = self._broken = 0
        self._left = len(workload.requests)
        self._due: dict[str, float] = {}

    def run(self) -> Result:
        contender, now = self._contender, 0.0
        contender.members([e for e in self.engines if e.alive], 0.0)
        for request in self._workload.requests:
            self._push(request.arrives, "arrives", request)
        for change in self._workload.changes:
            self._push(change.at, "changes", change)
        self._push(0.1, "tick", None)
        while self._events and self._left:
            now, _, kind, what = heapq.heappop(self._events)
            getattr(self, f"_{kind}")(what, now)
        return self._result(now)

    def _push(self, at: float, kind: str, what: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, kind, what))

    def _arrives(self, request: Request, now: float) -> None:
        engine = self._contender.pick(request, now)
        if not engine.alive:
            engine = self._contender.again(request, engine, now)
        before = self._last.get(request.session)
        self._moved += before is not None and before != engine.name
        self._last[request.session] = engine.name
        self._put(Running(request, engine, began=now), now)

    def _put(self, running: Running, now: float) -> None:
        self._contender.began(running, now)
        running.replica.put(running, now)
        self._wait_for(running.replica)

    def _wait_for(self, engine: Engine) -> None:
        due = engine.due
        if due is not None and self._due.get(engine.name) != due:
            self._due[engine.name] = due
            self._push(due, "is_due", engine)

    def _is_due(self, engine: Engine, now: float) -> None:
        if engine.due is None or engine.due > now:  # something else came before it
            return
        self._due.pop(engine.name, None)
        for running in engine.advance(now):
            assert running.first_token is not None
            self._ttft.append(running.first_token - running.request.arrives)
            self._contender.ended(running, now)
            self._left -= 1
        self._wait_for(engine)

    def _changes(self, change: Change, now: float) -> None:
        engine = self.engines[change.replica]
        if change.joins:
            engine.alive = True
            self._known(None, now)
            return
        self._push(now + NOTICED_S, "known", None)
        for running in engine.die():
            self._contender.ended(running, now)
            if running.first_token is not None:  # nobody can go on with half an answer
                self._broken += 1
                self._ttft.append(running.first_token - running.request.arrives)
                self._left -= 1
            else:
                elsewhere = self._contender.again(running.request, engine, now)
                self._put(Running(running.request, elsewhere, began=now), now)

    def _known(self, _: None, now: float) -> None:
        self._contender.members([e for e in self.engines if e.alive], now)

    def _tick(self, _: None, now: float) -> None:
        self._contender.tick(now)
        self._push(now + 0.1, "tick", None)

    def _result(self, now: float) -> Result:
        ttft = sorted(self._ttft)
        queried = [e.queried for e in self.engines]
        p50, p90, p99 = (ttft[min(len(ttft) - 1, int(q * len(ttft)))] for q in (0.5, 0.9, 0.99))
        return Result(
            p50,
            p90,
            p99,
            sum(ttft) / len(ttft),
            sum(e.hit for e in self.engines) / sum(queried),
            max(queried) / (sum(queried) / len(queried)),
            self._moved,
            len(ttft),
            self._broken,
            now,
        )
