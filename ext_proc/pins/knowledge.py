"""What this picker tells others and takes in from them: the table of homes, the prompts of
conversations without an id, what was sent where, the load, and first tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from homing.core.chains import Chains, News, Served
from homing.core.journal import Journal, Word
from homing.core.placement.load import Load
from homing.core.placement.underway import FirstTokens
from homing.core.prefix.index import Index
from homing.core.prefix.sent import SentNews
from homing.core.session import Homes
from homing.ext_proc.pins.message import MAX_SENT, MAX_SERVED, MAX_WORDS, Message


@dataclass(frozen=True, slots=True)
class Untold:
    """What one listener is still to be told."""

    journal: Journal
    news: News
    sent: SentNews
    firsts: FirstTokens

    def __bool__(self) -> bool:
        return len(self.journal) > 0 or self.journal.lost or len(self.news) > 0 or len(self.sent) > 0

    def again(self, message: Message) -> None:
        """It was not heard."""
        for word in message.words:
            self.journal.note(word.digest)
        self.news.again(message.served)
        self.sent.again(message.sent)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """`name`: of this run of this picker. `clock` as for Homes."""

    name: str
    homes: Homes
    chains: Chains
    load: Load
    prefixes: Index
    clock: Callable[[], float]

    def untold(self) -> Untold:
        """For one listener: from now on it gets a note of every change here."""
        return Untold(self.homes.journal(), self.chains.news(), self.prefixes.news(), self.load.underway.news())

    def message(self, untold: Untold | None) -> Message:
        """What is to be said now; without `untold` no more than the load. What does not arrive must be noted again."""
        now = self.clock()
        words = self.homes.words(untold.journal, MAX_WORDS, now) if untold is not None else []
        served = untold.news.take(MAX_SERVED) if untold is not None else []
        sent = untold.sent.take(MAX_SENT) if untold is not None else []
        firsts = untold.firsts.take() if untold is not None else []
        return Message.of(self.name, words, self.load.vectors(now), served, sent, firsts)

    def take_in(self, message: Message, *, load: bool = True) -> int:
        """How many words were news. Without `load` where a message may be old."""
        if message.sender == self.name:
            return 0
        now = self.clock()
        if load:
            self.load.absorb(message.sender, message.vectors(), now)
            self.load.underway.absorb(message.firsts, now)
        self.chains.absorb(message.served, now)
        self.prefixes.absorb(message.sent, now)
        return self.homes.absorb(message.words, now)

    def absorb(self, words: Sequence[Word]) -> int:
        return self.homes.absorb(words, self.clock())

    def absorb_served(self, served: Sequence[Served]) -> None:
        self.chains.absorb(served, self.clock())

    def served(self, prompts: Sequence[bytes]) -> list[Served]:
        return self.chains.served(prompts, self.clock())

    def words_of(self, digests: Sequence[bytes]) -> list[Word]:
        return self.homes.words_of(digests, self.clock())
