"""What placement is told of prefix caches, pool by pool: what engines say of their blocks, else what they were sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from homing.core.placement.load import Place
from homing.core.prefix.blocks import HeldBlocks
from homing.core.prefix.learned import LearnedPrompts
from homing.core.prefix.placed import PlacedPrompts
from homing.core.prefix.prompt import Prompt
from homing.core.prefix.sent import MAX_TOLD, SentNews, SentPrompt

SETTLED_S = 10.0
"""So long after a prompt was sent its blocks may still be on their way: the request waits, prefill runs."""


@dataclass(frozen=True, slots=True)
class PoolPrefixes:
    """One pool's knowledge."""

    placed: PlacedPrompts = field(default_factory=PlacedPrompts)
    blocks: HeldBlocks = field(default_factory=HeldBlocks)
    learned: LearnedPrompts = field(default_factory=LearnedPrompts)

    def held(self, prompt: Prompt, now: float) -> dict[str, int]:
        if not self.blocks.noted:  # no engine tells
            return {replica_id: prompt.tokens[count - 1] for replica_id, (count, _) in self.placed.held(prompt).items()}
        depth = self.learned.depth(prompt)
        found = self._said(prompt, depth) if depth else {}
        whole = prompt.tokens[depth - 1] if depth else 0
        for replica_id, (count, at) in self.placed.held(prompt).items():
            said = found.get(replica_id, 0)
            settled = now - at >= SETTLED_S and self.blocks.complete(replica_id)
            if settled and said < whole:  # the engine has dropped the rest
                continue
            found[replica_id] = max(said, prompt.tokens[count - 1])
        return found

    def _said(self, prompt: Prompt, depth: int) -> dict[str, int]:
        """What the engines hold of the prompt up to a mark that was learned."""
        beginning, found = self.learned.beginning(prompt, depth), dict[str, int]()
        for block_size, names in beginning.chains.items():
            blocks = beginning.blocks(block_size)
            for replica_id, length in self.blocks.held(names, blocks).items():
                found[replica_id] = prompt.tokens[depth - 1] * length // blocks
        return found


class Index:
    """Implements `core.placement.prefix.PrefixIndex`."""

    __slots__ = ("_news", "_pools")

    def __init__(self) -> None:
        self._pools: dict[str, PoolPrefixes] = {}
        self._news: list[SentNews] = []

    @property
    def pools(self) -> Mapping[str, PoolPrefixes]:
        return self._pools

    def pool(self, pool_id: str) -> PoolPrefixes:
        pool = self._pools.get(pool_id)
        if pool is None:
            pool = self._pools[pool_id] = PoolPrefixes()
        return pool

    def held(self, pool_id: str, prompt: Prompt, now: float) -> Mapping[str, int]:
        pool = self._pools.get(pool_id)
        return pool.held(prompt, now) if pool is not None else {}

    def placed(self, pool_id: str, replica_id: str, prompt: Prompt, now: float) -> None:
        known = self.pool(pool_id).placed.put(replica_id, prompt, now)
        if self._news and known < min(len(prompt.marks), MAX_TOLD):
            sent = SentPrompt.of(pool_id, replica_id, prompt)
            for news in self._news:
                news.note(sent)

    def news(self) -> SentNews:
        """For one listener: from now on it gets a note of every prompt that is sent here and begins as none before."""
        news = SentNews()
        self._news.append(news)
        return news

    def absorb(self, sent: Iterable[SentPrompt], now: float) -> None:
        """What another picker has sent. It is not told on: who says it says it to all."""
        for each in sent:
            if (prompt := each.prompt) is not None:
                self.pool(each.pool).placed.put(each.replica, prompt, now)

    def unlearned(self, pool_id: str, prompt: Prompt) -> int:
        """Tokens at the prompt's end whose blocks are not known; 0 where no engine tells what it holds."""
        pool = self._pools.get(pool_id)
        if pool is None or not pool.blocks.noted:
            return 0
        depth = pool.learned.depth(prompt)
        if not depth or not pool.blocks.block_sizes <= pool.learned.beginning(prompt, depth).chains.keys():
            return prompt.total  # an engine that came later has blocks of another size
        return prompt.total - prompt.tokens[depth - 1]

    def resize(self, place: Place, capacity_tokens: int) -> None:
        """How much the replica's cache holds, as its engine says."""
        self.pool(place[0]).placed.resize(place[1], capacity_tokens)

    def keep(self, pool_ids: Collection[str]) -> None:
        """Forgets all other pools."""
        for pool_id in self._pools.keys() - set(pool_ids):
            del self._pools[pool_id]

    def forget(self, place: Place) -> None:
        """What it was sent. What it says of its blocks is forgotten by who listens to it, who knows better: a replica
        that misses some probes still has them."""
        if (pool := self._pools.get(place[0])) is not None:
            pool.placed.forget(place[1])
