"""Proof of context: after a request has ended, its prompt is rendered, and every system text is looked for in it.

All repaired requests, and a sample of the others. Off the hot path: a request only leaves its body, which waits for the
request's end and then for its turn. Those that wait are bounded by number and by bytes, and looking at them by the
share of time that it takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from homing.core.config import Config, PoolConfig
from homing.core.config.secret import SecretRef
from homing.core.context.proof import Case, NoCaseError, case_of, missing
from homing.core.fleet import Pool
from homing.core.template.probe import RefusedError

log = logging.getLogger(__name__)

MAX_HELD = 256
MAX_HELD_BYTES = 64 << 20
MAX_BODY_BYTES = 2 << 20
REST = 9
"""Times as long as a proof took, until the next one: a tenth of the time at the most."""

MAX_REST_S = 1.0


class Incomplete(StrEnum):
    """What is wrong with a prompt (docs/metrics.md)."""

    LOST = "lost"  # a text of a request that was not repaired is not in it
    REPAIRED = "repaired"  # of one that was
    REFUSED = "refused"  # there is none: the template raises an error


class Unchecked(StrEnum):
    """Why a prompt was not looked at (docs/metrics.md)."""

    QUEUE = "queue"
    SIZE = "size"
    SHAPE = "shape"
    TEMPLATE = "template"
    RATE = "rate"
    ENGINE = "engine"
    WORKER = "worker"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Offer:
    """One request: what the client said, and what was sent to the engine."""

    pool: Pool
    path: bytes
    said: bytes
    sent: bytes
    repaired: bool

    @property
    def size_bytes(self) -> int:
        return len(self.sent) if self.sent is self.said else len(self.said) + len(self.sent)


class Counters(Protocol):
    complete: Counter[str]
    incomplete: Counter[tuple[str, str]]
    unchecked: Counter[str]


class UnprovableError(Exception):
    """The prompt cannot be had."""

    def __init__(self, reason: Unchecked) -> None:
        super().__init__(reason)
        self.reason = reason


class Prompts(Protocol):
    async def prompt(self, pool: Pool, case: Case, key: SecretRef | None) -> str:
        """As the pool's engine makes it; `key`: the place of its API key. Raises RefusedError, UnprovableError."""


class Proof:
    """Takes offers on the hot path, proves them in a task of its own. `chance` gives a number from 0 to 1."""

    def __init__(self, counts: Counters, chance: Callable[[], float]) -> None:
        self._counts = counts
        self._chance = chance
        self._pools: Mapping[str, PoolConfig] = {}
        self._waiting: deque[Offer] = deque()
        self._held = 0
        self._held_bytes = 0
        self._offered = asyncio.Event()

    def configure(self, config: Config) -> None:
        self._pools = {pool.id: pool for pool in config.pools}

    def samples(self, pool: Pool) -> bool:
        """Whether a request of the pool is in the sample."""
        known = self._pools.get(pool.id)
        return known is not None and known.proof.sample > 0 and self._chance() < known.proof.sample

    def asks(self, pool: Pool) -> bool:
        """Whether the body of one in the sample is asked for, where nothing else needs it."""
        known = self._pools.get(pool.id)
        return known is not None and known.proof.ask

    def hold(self, offer: Offer) -> bool:
        """Whether there is room for it until its request has ended. What is held must be offered."""
        if len(offer.said) > MAX_BODY_BYTES:
            self._counts.unchecked[Unchecked.SIZE] += 1
            return False
        if self._held >= MAX_HELD or self._held_bytes + offer.size_bytes > MAX_HELD_BYTES:
            self._counts.unchecked[Unchecked.QUEUE] += 1
            return False
        self._held += 1
        self._held_bytes += offer.size_bytes
        return True

    def offer(self, offer: Offer) -> None:
        """The request has ended."""
        self._waiting.append(offer)
        self._offered.set()

    async def run(self, prompts: Prompts) -> None:
        """Until cancelled."""
        now_s = asyncio.get_running_loop().time
        while True:
            await self._offered.wait()
            while self._waiting:
                offer = self._waiting.popleft()
                begun_s = now_s()
                await self._prove(offer, prompts)
                self._held -= 1
                self._held_bytes -= offer.size_bytes
                await asyncio.sleep(min(REST * (now_s() - begun_s), MAX_REST_S))
            self._offered.clear()

    async def _prove(self, offer: Offer, prompts: Prompts) -> None:
        pool_id = offer.pool.id
        try:
            case = await asyncio.to_thread(case_of, offer.path, offer.said, offer.sent)
            known = self._pools.get(pool_id)
            prompt = await prompts.prompt(offer.pool, case, known.engine.api_key if known else None)
            lost = await asyncio.to_thread(missing, prompt, case.texts)
        except NoCaseError:
            self._counts.unchecked[Unchecked.SHAPE] += 1
        except UnprovableError as error:
            self._counts.unchecked[error.reason] += 1
        except RefusedError:
            self._counts.incomplete[pool_id, Incomplete.REFUSED] += 1
        except Exception as error:  # a bug in the proof must not end the picker; its words may be a prompt's
            log.error("a request of pool %s could not be proved: %s", pool_id, type(error).__name__)
            self._counts.unchecked[Unchecked.ERROR] += 1
        else:
            if lost:
                self._counts.incomplete[pool_id, Incomplete.REPAIRED if offer.repaired else Incomplete.LOST] += 1
            else:
                self._counts.complete[pool_id] += 1
