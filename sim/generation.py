"""One request in the engine: its choices, and what comes out of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from homing.sim.detokenizer import TextStream
from homing.sim.driver import Driver
from homing.sim.logprobs import Guess
from homing.sim.sequence import FinishReason
from homing.sim.sequence import Sequence as Tokens
from homing.sim.tokenizer import TokenIds


@dataclass(frozen=True, slots=True)
class Delta:
    """What one choice got since the last look at it."""

    index: int
    text: str
    tokens: TokenIds
    finish_reason: FinishReason | None = None
    stop_reason: str | None = None
    guesses: Sequence[Guess] = ()  # one a token, where the request wants log probabilities


class Choice:
    """A sequence and its text. Keeps no copy of what was sent: a slow reader costs one number."""

    __slots__ = ("_guesses", "_seen", "index", "reported", "sequence", "text")

    def __init__(self, index: int, sequence: Tokens, text: TextStream, guesses: Sequence[Guess] = ()) -> None:
        self._guesses = guesses
        self.index = index
        self.sequence = sequence
        self.text = text
        self.reported = False  # that it finished
        self._seen = sequence.prompt_tokens

    def due(self, interval: int) -> bool:
        """Whether there is something to say: an end, the first token, or `interval` tokens more."""
        new = len(self.sequence.tokens) - self._seen
        return self.sequence.finished or new >= (interval if self._seen > self.sequence.prompt_tokens else 1)

    def look(self) -> Delta | None:
        if self.reported:
            return None
        finished = self.sequence.finished
        new = self.sequence.tokens[self._seen :]
        if not new and not finished:
            return None
        start = self._seen - self.sequence.prompt_tokens
        self._seen += len(new)
        text = self.text.push(new, last=finished)
        self.reported = finished
        guesses = self._guesses[start : start + len(new)]
        return Delta(self.index, text, new, self.sequence.finish_reason, self.text.stopped, guesses)


class Generation:
    """All choices of one request: `per_prompt` of them for its first prompt, then as many for the next."""

    def __init__(self, driver: Driver, choices: Sequence[Choice], per_prompt: int = 1, interval: int = 1) -> None:
        """`interval`: vLLM's `--stream-interval`, tokens between two deltas of a choice after its first."""
        self._driver = driver
        self._interval = interval
        self._news = asyncio.Event()
        self.choices = choices
        self._firsts = choices[::per_prompt]

    @property
    def prompt_tokens(self) -> int:
        """Over the prompts, not the choices: several answers to one prompt count it once."""
        return sum(c.sequence.prompt_tokens for c in self._firsts)

    def reported(self, *, streamed: bool) -> Tokens:
        """The one sequence whose reuse vLLM tells of: streamed, the first of all, whole, the last."""
        return self.choices[0 if streamed else -1].sequence

    @property
    def output_tokens(self) -> int:
        return sum(c.sequence.output_tokens for c in self.choices)

    def start(self) -> None:
        for choice in self.choices:
            self._driver.submit(choice.sequence, partial(self._wake, choice))

    def _wake(self, choice: Choice) -> None:
        if choice.due(self._interval):
            self._news.set()

    def abort(self) -> None:
        """End what still runs. Harmless when nothing does."""
        for choice in self.choices:
            self._driver.finish(choice.sequence, FinishReason.ABORT)

    async def deltas(self) -> AsyncIterator[Delta]:
        """In order per choice, until each has ended. A reader that is late gets several tokens in one delta."""
        open_choices = list(self.choices)
        while open_choices:
            await self._news.wait()
            self._news.clear()
            for choice in open_choices:
                delta = choice.look() if choice.due(self._interval) else None
                if delta is not None:
                    yield delta
            open_choices = [c for c in open_choices if not c.reported]
