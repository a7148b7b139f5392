"""A modelled replica that batches as vLLM does: steps with a budget of tokens, prompts in chunks beside the decoding of
others. Its times are those of `homing sim` (`sim/time_model.py`), and so it is bound by decoding where that is.

Against the sim (`sim/batching.py`) it leaves out preemption, and knows of the end of a session's context (what does not
fill one of the workloads' blocks, and the answer) only as long as the blocks before it are cached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

from bench.placement.engine import BLOCK, Engine, Request, Running
from homing.sim.presets import Preset, load_presets
from homing.sim.time_model import StepLoad

FINE = 16
"""Tokens of an engine's own block."""

MEMORY_UTILIZATION = 0.9


class Growing:
    """A sequence in the batch."""

    __slots__ = ("computed", "running", "target")

    def __init__(self, running: Running, computed: int) -> None:
        self.running = running
        self.computed = computed
        self.target = running.request.tokens  # one more with each token of the answer

    @property
    def answered(self) -> int:
        return self.target - self.running.request.tokens


class Batching(Engine):
    """`share`: of the preset's speed, at which a replica of speed 1 runs."""

    def __init__(self, name: str, speed: float = 1.0, preset: str = "a100-llama-8b", share: float = 0.5) -> None:
        known = presets()[preset]
        roofline = known.roofline(share)
        blocks = roofline.kv_blocks(FINE, MEMORY_UTILIZATION) * FINE // BLOCK
        super().__init__(name, speed, blocks, known.max_num_seqs)
        self._step_s: Callable[[StepLoad], float] = roofline.step_s
        self._budget = known.max_num_batched_tokens
        self._batch: list[Growing] = []
        self._step: tuple[float, list[tuple[Growing, int]]] | None = None  # when it ends, and how many tokens of each
        self._held: Counter[int] = Counter()  # blocks of the batch, which may share them
        self._own = 0  # tokens of the batch that fill no block of theirs
        self._contexts: dict[str, tuple[int, int, int]] = {}  # of sessions: turn, full blocks before, tokens

    @property
    def due(self) -> float | None:
        return self._step[0] if self._step is not None else None

    def match(self, request: Request) -> int:
        matched = self._matched(request.blocks)
        cached = matched * BLOCK
        turn, blocks, tokens = self._contexts.get(request.session, (0, 0, 0))
        if turn < request.turn and matched >= blocks and tokens < request.tokens:
            cached = max(cached, tokens)
        return min(cached, request.tokens - 1) // FINE * FINE

    def put(self, running: Running, now: float) -> None:
        self.queue.append(running)
        if self._step is None:
            self._begin(now)

    def advance(self, now: float) -> list[Running]:
        step, self._step = self._step, None
        ended = [growing for growing, tokens in step[1] if self._computed(growing, tokens, now)] if step else []
        for growing in ended:
            self._batch.remove(growing)
            self._leave(growing)
        self._begin(now)
        return [growing.running for growing in ended]

    def die(self) -> list[Running]:
        self._batch.clear()
        self._contexts.clear()
        self._held.clear()
        self._step, self._own = None, 0
        return super().die()

    def _computed(self, growing: Growing, tokens: int, now: float) -> bool:
        """So many more of its tokens are. Whether that was the last one."""
        running, before = growing.running, growing.computed
        growing.computed += tokens
        if running.first_token is None:
            self.touch(running.request.blocks[before // BLOCK : growing.computed // BLOCK])
        if growing.computed < growing.target:
            return False
        if running.first_token is None:
            running.first_token = now
            self._keeps(growing)
        growing.target += 1
        self._own += 1
        return growing.answered >= running.request.answer

    def _leave(self, growing: Growing) -> None:
        request = growing.running.request
        self.at_work.pop(id(growing.running), None)
        self._own -= growing.target - len(request.blocks) * BLOCK
        self._held.subtract(request.blocks)
        for block in request.blocks:
            if not self._held[block]:
                del self._held[block]
        self.touch(request.blocks)
        self._keeps(growing)

    def _keeps(self, growing: Growing) -> None:
        """What was computed of it is the session's context from now on."""
        request = growing.running.request
        if self._contexts.get(request.session, (-1, 0, 0))[0] <= request.turn:
            self._contexts[request.session] = (request.turn, len(request.blocks), growing.computed)

    def _begin(self, now: float) -> None:
        """The next step, if there is anything to do."""
        budget = self._budget
        scheduled: list[tuple[Growing, int]] = []
        for growing in self._batch:
            tokens = min(growing.target - growing.computed, budget)
            if tokens <= 0:
                break
            scheduled.append((growing, tokens))
            budget -= tokens
        while budget > 0 and self._admits():
            growing = self._admit()
            tokens = min(growing.target - growing.computed, budget)
            scheduled.append((growing, tokens))
            budget -= tokens
        if scheduled:
            load = StepLoad.of([(growing.computed, tokens) for growing, tokens in scheduled])
            self._step = (now + self._step_s(load) / self.speed, scheduled)

    def _admits(self) -> bool:
        if not self.queue or len(self._batch) >= self.slots:
            return False
        request = self.queue[0].request
        more = sum(block not in self._held for block in request.blocks) - len(request.blocks)
        wanted = (len(self._held) + more) * BLOCK + self._own + request.tokens
        return not self._batch or wanted <= self.cache_blocks * BLOCK

    def _admit(self) -> Growing:
        running = self.queue.popleft()
        self._look_up(running)
        self.at_work[id(running)] = running
        growing = Growing(running, running.request.tokens - running.uncached)
        self.touch(running.request.blocks[: growing.computed // BLOCK])
        self._batch.append(growing)
        self._held.update(running.request.blocks)
        self._own += running.request.tokens - len(running.request.blocks) * BLOCK
        return growing


@cache
def presets() -> dict[str, Preset]:
    return load_presets()
