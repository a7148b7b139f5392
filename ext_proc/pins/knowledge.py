"""What this picker tells others and takes in from them: the table of homes, and the load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from homing.core.journal import Journal, Word
from homing.core.placement.load import Load
from homing.core.session import Homes
from homing.ext_proc.pins.message import MAX_WORDS, Message


@dataclass(frozen=True, slots=True)
class Knowledge:
    """`name`: of this run of this picker. `clock` as for Homes."""

    name: str
    homes: Homes
    load: Load
    clock: Callable[[], float]

    def message(self, journal: Journal | None) -> Message:
        """What is to be said now; without a journal no more than the load. Words that do not arrive must be noted in
        the journal again."""
        now = self.clock()
        words = self.homes.words(journal, MAX_WORDS, now) if journal is not None else []
        return Message.of(self.name, words, self.load.vectors(now))

    def take_in(self, message: Message, *, load: bool = True) -> int:
        """How many words were news. Without `load` where a message may be old."""
        if message.sender == self.name:
            return 0
        now = self.clock()
        if load:
            self.load.absorb(message.sender, message.vectors(), now)
        return self.homes.absorb(message.words, now)

    def absorb(self, words: Sequence[Word]) -> int:
        return self.homes.absorb(words, self.clock())

    def words_of(self, digests: Sequence[bytes]) -> list[Word]:
        return self.homes.words_of(digests, self.clock())


def note_again(journal: Journal, words: Sequence[Word]) -> None:
    """They were not heard."""
    for word in words:
        journal.note(word.digest)
