"""Which blocks the messages of a prompt are: learned from an engine's tokenizer, off the hot path.

A prompt that was tokenized once tells for each of its marks about how many of its blocks come before it. A later prompt
with the same leading messages has the same leading blocks, so nobody has to tokenize it.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from homing.core.prefix.prompt import Prompt

MAX_NAMES = 1_000_000
"""Block names kept for all prompts of a pool, 8 bytes each."""

MAX_PROMPTS = 20_000

Chains = Mapping[int, "array[int]"]
"""For each block size: the names of a prompt's full blocks."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The part of a tokenized prompt up to a mark. `share`: of its tokens, by the estimate; `total`: its tokens."""

    chains: Chains
    share: float
    total: int

    def blocks(self, block_size: int) -> int:
        names = self.chains.get(block_size)
        return min(len(names), int(self.share * self.total) // block_size) if names is not None else 0


class LearnedPrompts:
    """The longest unused leaves first."""

    __slots__ = ("_by_mark", "_names", "_prompts")

    def __init__(self) -> None:
        self._by_mark: dict[int, tuple[int, float]] = {}  # -> (last mark of a prompt, share)
        # last mark -> (marks, chains, tokens)
        self._prompts: OrderedDict[int, tuple[tuple[int, ...], Chains, int]] = OrderedDict()
        self._names = 0

    def __len__(self) -> int:
        return len(self._prompts)

    def learn(self, prompt: Prompt, chains: Chains, total: int) -> None:
        """The engine made `total` tokens of it, and `chains` are their blocks."""
        if not prompt.marks:
            return
        last = prompt.marks[-1]
        self._drop(last)
        self._prompts[last] = (prompt.marks, chains, total)
        self._names += _size(chains)
        for mark, tokens in zip(prompt.marks, prompt.tokens, strict=True):
            self._by_mark[mark] = (last, tokens / prompt.total)
        while len(self._prompts) > 1 and (self._names > MAX_NAMES or len(self._prompts) > MAX_PROMPTS):
            self._drop(next(iter(self._prompts)))

    def depth(self, prompt: Prompt) -> int:
        """Up to which of its marks, counted from 1, it is known; 0 for not at all."""
        return next((i + 1 for i in range(len(prompt.marks) - 1, -1, -1) if prompt.marks[i] in self._by_mark), 0)

    def beginning(self, prompt: Prompt, depth: int) -> Beginning:
        """The blocks up to the mark that `depth` said. Counts as use."""
        last, share = self._by_mark[prompt.marks[depth - 1]]
        entry = self._prompts.pop(last)
        self._prompts[last] = entry
        return Beginning(entry[1], share, entry[2])

    def _drop(self, last: int) -> None:
        entry = self._prompts.pop(last, None)
        if entry is not None:
            self._names -= _size(entry[1])
            for mark in entry[0]:
                if self._by_mark.get(mark, (None,))[0] == last:
                    del self._by_mark[mark]


def _size(chains: Chains) -> int:
    return sum(map(len, chains.values()))
