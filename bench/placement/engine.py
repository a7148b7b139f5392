"""A modelled replica: an LRU prefix cache, one prefill at a time, decoding beside it.

The times are a model (docs/placement.md says what it leaves out); what matters is that it is the same for everybody.
"""

from __future__ import annotations

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
    dropped: bool = False  # its replica died


class Engine:
    """One replica. `speed` scales prefill and decoding."""

    def __init__(self, name: str, speed: float = 1.0, cache_blocks: int = 800, slots: int = 48) -> None:
        self.name = name
        self.speed = speed
        self.prefill_per_s = 8000.0 * speed
        self.cache_blocks = cache_blocks
        self.slots = slots
        self.alive = True
        self.queue: deque[Running] = deque()
        self.at_work: dict[int, Running] = {}
        self.prefilling: Running | None = None
        self.queried = 0
        self.hit = 0
        self._cache: OrderedDict[int, None] = OrderedDict()

    @property
    def in_flight(self) -> int:
        return len(self.queue) + len(self.at_work)

    @property
    def cached_blocks(self) -> int:
        return len(self._cache)

    def match(self, blocks: tuple[int, ...], tokens: int) -> int:
        """Tokens of the prompt that are cached; never its last one (vLLM)."""
        n = 0
        for block in blocks:
            if block not in self._cache:
                break
            n += 1
        return min(n, max(0, (tokens - 1) // BLOCK)) * BLOCK

    def touch(self, blocks: tuple[int, ...]) -> None:
        cache = self._cache
        for block in blocks:
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > self.cache_blocks:
            cache.popitem(last=False)

    def start(self, now: float) -> tuple[float, Running] | None:
        """The next prefill, if one can begin: when it ends, and whose it is."""
        if self.prefilling is not None or not self.queue or len(self.at_work) >= self.slots:
            return None
        running = self.queue.popleft()
        request = running.request
        cached = self.match(request.blocks, request.tokens)
        running.uncached = request.tokens - cached
        self.hit += cached
        self.queried += request.tokens
        self.prefilling = running
        self.at_work[id(running)] = running
        slowed = 1 + 0.3 * min(1.0, len(self.at_work) / self.slots)
        return now + running.uncached / self.prefill_per_s * slowed, running

    def prefilled(self, running: Running, now: float) -> float:
        """The first token is there. When the answer ends."""
        self.prefilling = None
        running.first_token = now
        self.touch(running.request.blocks)
        return now + running.request.answer * (0.015 + 0.0003 * len(self.at_work)) / self.speed

    def finished(self, running: Running) -> None:
        self.at_work.pop(id(running), None)
        self.touch(running.request.blocks)

    def die(self) -> list[Running]:
        """All that was at work or waited."""
        lost = [*self.at_work.values(), *self.queue]
        for running in lost:
            running.dropped = True
        self.alive, self.prefilling = False, None
        self.at_work.clear()
        self.queue.clear()
        self._cache.clear()
        return lost
