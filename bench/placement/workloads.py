"""Workloads, each from its seed: the same requests for every contender."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from bench.placement.batching import Batching
from bench.placement.engine import BLOCK, Request
from bench.placement.world import Change, Workload

STRIDE = 1_000_000
"""Block numbers of a session or a tenant begin at a multiple of it."""


TRACE_STEP_S = 3.0
"""Between the moments that the trace knows."""


class Writer:
    """Makes requests; a prompt's bytes are about four for a token, and differ from session to session."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.requests: list[Request] = []
        self._owners = count(1)

    def blocks(self) -> Iterator[int]:
        """A text of its own, without end."""
        return count(next(self._owners) * STRIDE)

    def text(self) -> int:
        """Where a text of its own begins."""
        return next(self._owners) * STRIDE

    def add(self, at: float, session: str, turn: int, tokens: int, answer: int, blocks: tuple[int, ...]) -> None:
        self.requests.append(Request(at, session, turn, tokens, answer, blocks, tokens * 4))

    def sorted(self) -> list[Request]:
        return sorted(self.requests, key=lambda r: r.arrives)


def chat(
    rate: float = 2.4,
    until: float = 600.0,
    seed: int = 5,
    tenants: int = 20,
    turns: tuple[int, int] = (4, 20),
    paces: Callable[[float], float] = lambda _: 1.0,
) -> list[Request]:
    """Sessions of several turns, each with its tenant's system prompt. `paces` scales the rate over time."""
    w = Writer(seed)
    g = w.random
    prompts = [tuple(range(t := w.text(), t + 2 + tenant % 10)) for tenant in range(tenants)]
    at = 0.0
    while at < until:
        at += g.expovariate(rate * paces(at))
        system, own, session = g.choice(prompts), w.text(), f"s{len(w.requests)}"
        then, said = at, 0
        for turn in range(g.randint(*turns)):
            said += g.randint(100, 600)
            answer = g.randint(100, 500)
            w.add(then, session, turn, len(system) * BLOCK + said, answer, (*system, *range(own, own + said // BLOCK)))
            said += answer
            then += g.expovariate(1 / 12) + answer * 0.02
    return w.sorted()


def shared(rate: float = 9.0, until: float = 300.0, seed: int = 2, tenants: int = 150) -> list[Request]:
    """One-turn requests of many users; a tenant's share a prompt of 6,144 tokens."""
    w = Writer(seed)
    g = w.random
    prompts = [tuple(range(t := w.text(), t + 12)) for _ in range(tenants)]
    at = 0.0
    while at < until:
        at += g.expovariate(rate)
        tenant, user, own = g.randrange(tenants), g.randrange(5), w.text()
        blocks = (*prompts[tenant], *range(own, own + 2))
        w.add(at, f"t{tenant}u{user}", 0, 12 * BLOCK + 1200, g.randint(500, 1000), blocks)
    return w.sorted()


def agents(number: int = 40, until: float = 600.0, seed: int = 3) -> list[Request]:
    """Long loops: contexts grow to 100,000 tokens and begin anew. One in four grows four times as fast."""
    w = Writer(seed)
    g = w.random
    system = tuple(range(t := w.text(), t + 4))
    for agent in range(number):
        at, said, turn, own = g.uniform(0, 60), 0, 0, w.text()
        pace = g.choice((1, 1, 1, 4))
        while at < until:
            said += g.randint(300, 3000) * pace
            if said > 100_000:
                said, own = 2000, w.text()
            answer = g.randint(50, 400)
            blocks = (*system, *range(own, own + said // BLOCK))
            w.add(at, f"a{agent}", turn, 4 * BLOCK + said, answer, blocks)
            said, turn = said + answer, turn + 1
            at += g.expovariate(1 / 6) + answer * 0.02
    return w.sorted()


def subagents(loops: list[Request], seed: int = 31) -> list[Request]:
    """Now and then a turn of an agent starts four subagents at once, of some quick turns each. They share the system
    prompt of all agents."""
    random = Random(seed)
    system = loops[0].blocks[:4]
    made = []
    for request in loops:
        if random.random() >= 0.04:
            continue
        for child in range(4):
            at, said = request.arrives + random.uniform(0, 0.3), random.randint(500, 4000)
            for turn in range(random.randint(2, 6)):
                tokens, answer = len(system) * BLOCK + said, random.randint(50, 300)
                session = f"{request.session}.{request.turn}.{child}"
                made.append(Request(at, session, turn, tokens, answer, system, tokens * 4))
                said += answer + random.randint(200, 1500)
                at += random.expovariate(1 / 2) + answer * 0.02
    return made


def heavy(rate: float = 0.45, until: float = 600.0, seed: int = 11) -> list[Request]:
    """Heavy-tailed first prompts (Pareto), up to 120,000 tokens, few turns."""
    w = Writer(seed)
    g = w.random
    at = 0.0
    while at < until:
        at += g.expovariate(rate)
        said, own, then = int(min(1500 * g.paretovariate(0.9), 120_000)), w.text(), at
        session = f"h{len(w.requests)}"
        for turn in range(g.randint(1, 8)):
            answer = g.randint(50, 400)
            w.add(then, session, turn, said, answer, tuple(range(own, own + said // BLOCK)))
            said += answer + g.randint(50, 800)
            then += g.expovariate(1 / 10) + answer * 0.02
    return w.sorted()


def trace(path: Path, faster: float = 1.0, most: int | None = None) -> list[Request]:
    """A production trace (Mooncake, Apache-2.0): a session is told by its second block."""
    requests: list[Request] = []
    turns: dict[str, int] = {}
    with path.open() as lines:
        for number, line in enumerate(lines):
            if number == most:
                break
            entry = json.loads(line)
            ids = tuple(entry["hash_ids"])
            session = f"m{ids[1]}" if len(ids) > 1 else f"u{number}"
            turn = turns[session] = turns.get(session, -1) + 1
            tokens = entry["input_length"]
            at = entry["timestamp"] / 1000 / faster
            requests.append(Request(at, session, turn, tokens, entry["output_length"], ids, tokens * 4))
    return requests


def scattered(requests: list[Request], within_s: float, seed: int = 0) -> list[Request]:
    """Each at random within so many seconds after the moment it is said to come at, in the same order: the times of the
    trace are those of whoever wrote it every three seconds, not of its clients (12,031 requests in 1,180 moments)."""
    random = Random(seed)
    together: dict[float, list[Request]] = {}
    for request in requests:
        together.setdefault(request.arrives, []).append(request)
    return [
        replace(request, arrives=at + passed)
        for at, group in together.items()
        for request, passed in zip(group, sorted(random.uniform(0.0, within_s) for _ in group), strict=True)
    ]


def named(requests: list[Request]) -> list[Request]:
    """The clients choose their ids."""
    return [replace(r, named=True) for r in requests]


def half_keyless(requests: list[Request]) -> list[Request]:
    """Every other session sends no id at all."""
    sessions = {name: i for i, name in enumerate(dict.fromkeys(r.session for r in requests))}
    return [replace(r, keyless=sessions[r.session] % 2 == 0) for r in requests]


def bursts(at: float) -> float:
    """Five times the rate for 10 s of every minute, little in between."""
    return 4.0 if at % 60 < 10 else 0.4


Makers = Mapping[str, Callable[[], Workload]]


def makers(trace_path: Path | None = None, seed: int = 0) -> Makers:
    """By name. Those of the trace only where it is given. Another `seed`: the same kinds of clients, other draws."""
    more = 1000 * seed
    made: dict[str, Callable[[], Workload]] = {
        "chat": lambda: Workload("chat", chat(seed=5 + more)),
        "shared": lambda: Workload("shared", shared(seed=2 + more)),
        "agents": lambda: Workload("agents", agents(seed=3 + more)),
        "agents_overload": lambda: Workload("agents_overload", agents(80, seed=3 + more)),
        "agents_light": lambda: Workload("agents_light", agents(24, seed=3 + more)),
        "slow": lambda: Workload("slow", chat(1.6, seed=7 + more), speeds={3: 0.5}),
        "bursts": lambda: Workload("bursts", chat(2.0, seed=13 + more, paces=bursts)),
        "failure": lambda: Workload("failure", chat(2.0, seed=17 + more), changes=(Change(250.0, 2, joins=False),)),
        "scale_up": lambda: Workload(
            "scale_up", chat(2.0, seed=19 + more), changes=(Change(250.0, 6, joins=True), Change(250.0, 7, joins=True))
        ),
        "heavy": lambda: Workload("heavy", heavy(seed=11 + more)),
        "tenants": lambda: Workload("tenants", named(chat(2.4, seed=23 + more, tenants=200))),
        "keyless": lambda: Workload("keyless", half_keyless(chat(2.4, seed=29 + more))),
    }
    if trace_path is not None:
        step_s = TRACE_STEP_S
        made["trace"] = lambda: Workload("trace", scattered(trace(trace_path), step_s, seed))
        made["trace_fast"] = lambda: Workload("trace_fast", scattered(trace(trace_path, 1.5, 8000), step_s / 1.5, seed))
    return made


Requests = Mapping[str, Callable[[], list[Request]]]

TRACE_PACE = 0.55
"""Of the trace, before four replicas at load 1: it was taken from a larger cluster."""


def before_four(trace_path: Path | None, seed: int, load: float, until_s: float) -> Requests:
    """By name, what clients ask of four replicas in `bench.routing`; `load` 1 is near saturation."""
    rate = 2.75 * load

    def loops() -> list[Request]:
        return agents(max(2, round(28 * load)), until=until_s, seed=3 + seed)

    made: dict[str, Callable[[], list[Request]]] = {
        "chat": lambda: chat(rate, until_s, seed=5 + seed),
        "shared": lambda: shared(3.2 * load, until_s, seed=2 + seed),
        "agents": lambda: [*(begun := loops()), *subagents(begun, 31 + seed)],
        "slow": lambda: chat(0.85 * rate, until_s, seed=5 + seed),
    }
    if trace_path is not None:
        made["trace"] = lambda: trace(trace_path, TRACE_PACE * load)
    return {name: partial(_until, make, until_s) for name, make in made.items()}


def batching(trace_path: Path | None = None, seed: int = 0, load: float = 0.7, until_s: float = 240.0) -> Makers:
    """The workloads of `bench.routing`, before four replicas that batch."""

    def few(name: str, make: Callable[[], list[Request]]) -> Workload:
        return Workload(name, make(), 4, {3: 0.5} if name == "slow" else {}, engine=Batching)

    return {n: partial(few, n, make) for n, make in before_four(trace_path, seed, load, until_s).items()}


def _until(make: Callable[[], list[Request]], until_s: float) -> list[Request]:
    """Cut there, in order of arrival."""
    return sorted((r for r in make() if r.arrives < until_s), key=lambda r: r.arrives)
