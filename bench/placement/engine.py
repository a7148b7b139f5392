"""A modelled replica: an LRU prefix cache, one prefill at a time, decoding beside it.

The times are a model (docs/placement.md says what it leaves out); what matters is that it is the same for everybody.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from dataclasses import dataclass

BLOCK = 512
"""Tokens of a block."""


@dataclass(slots=True)
class Request:
    """One turn. `blocks` are the prompt's full blocks, in order; equal blocks are equal text."""

    arrives: float
    session: str
    turn: int
    tokens: int
    answer: int
    blocks: tuple[int, ...]
    size_bytes: int = 0
    named: bool = False  # the client chose the session's id
    keyless: bool = False  # it never sends one


@dataclass(slots=True)
class Running:
    """A request at a replica."""

    request: Request
    replica: Engine
    uncached: int = 0
    first_token: float | None = None
    began: float = 0.0


class Engine:
    """One replica: one prefill at a time, decoding beside it. `speed` scales both.

    Used as: `put` what arrives, and `advance` whenever it is `due`.
    """

    def __init__(self, name: str, speed: float = 1.0, cache_blocks: int = 800, slots: int = 48) -> None:
        self.name = name
        self.speed = speed
        self.prefill_per_s = 8000.0 * speed
        self.cache_blocks = cache_blocks
        self.slots = slots
        self.alive = True
        self.queue: deque[Running] = deque()
        self.at_work: dict[int, Running] = {}
        self.prefilling: tuple[float, Running] | None = None  # and when that ends
        self.queried = 0
        self.hit = 0
        self._ends: list[tuple[float, int, Running]] = []
        self._count = 0
        self._cache: OrderedDict[int, None] = OrderedDict()

    @property
    def in_flight(self) -> int:
        return len(self.queue) + len(self.at_work)

    @property
    def cached_blocks(self) -> int:
        return len(self._cache)

    @property
    def due(self) -> float | None:
        """When something happens here next."""
        prefilled = self.prefilling[0] if self.prefilling is not None else math.inf
        ended = self._ends[0][0] if self._ends else math.inf
        soonest = min(prefilled, ended)
        return soonest if soonest < math.inf else None

    def match(self, request: Request) -> int:
        """Tokens of the prompt that are cached; never its last one (vLLM)."""
        return min(self._matched(request.blocks), max(0, (request.tokens - 1) // BLOCK)) * BLOCK

    def touch(self, blocks: tuple[int, ...]) -> None:
        cache = self._cache
        for block in blocks:
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > self.cache_blocks:
            cache.popitem(last=False)

    def put(self, running: Running, now: float) -> None:
        """It arrives."""
        self.queue.append(running)
        self._start(now)

    def advance(self, now: float) -> list[Running]:
        """What is due at `now` happens. Answers that have ended."""
        ended = []
        if self.prefilling is not None and self.prefilling[0] <= now:
            self._prefilled(self.prefilling[1], now)
        while self._ends and self._ends[0][0] <= now:
            running = heapq.heappop(self._ends)[2]
            self.at_work.pop(id(running), None)
            self.touch(running.request.blocks)
            ended.append(running)
        self._start(now)
        return ended

    def die(self) -> list[Running]:
        """All that was at work or waited."""
        lost = [*self.at_work.values(), *self.queue]
        self.alive, self.prefilling = False, None
        self.at_work.clear()
        self.queue.clear()
        self._ends.clear()
        self._cache.clear()
        return lost

    def _matched(self, blocks: tuple[int, ...]) -> int:
        """Leading blocks that are cached."""
        cache = self._cache
        return next((i for i, block in enumerate(blocks) if block not in cache), len(blocks))

    def _start(self, now: float) -> None:
        """The next prefill, if one can begin."""
        if self.prefilling is not None or not self.queue or len(self.at_work) >= self.slots:
            return
        running = self.queue.popleft()
        self._look_up(running)
        self.at_work[id(running)] = running
        slowed = 1 + 0.3 * min(1.0, len(self.at_work) / self.slots)
        self.prefilling = (now + running.uncached / self.prefill_per_s * slowed, running)

    def _look_up(self, running: Running) -> None:
        request = running.request
        cached = self.match(request)
        running.uncached = request.tokens - cached
        self.hit += cached
        self.queried += request.tokens

    def _prefilled(self, running: Running, now: float) -> None:
        """The first token is there."""
        self.prefilling = None
        running.first_token = now
        self.touch(running.request.blocks)
        self._count += 1
        end = now + running.request.answer * (0.015 + 0.0003 * len(self.at_work)) / self.speed
        heapq.heappush(self._ends, (end, self._count, running))
