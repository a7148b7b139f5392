"""Conversations as they are sent: each turn is a whole prompt, as a client without memory on the server sends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import msgspec

LEAST_TURNS = 4
"""Fewer show little: a prompt that is sent once more has hardly grown."""


class Message(msgspec.Struct, frozen=True):
    """In OpenAI's shape; texts only."""

    role: str
    content: str

    @property
    def text(self) -> str:
        """What of it is in the prompt, whatever the template."""
        return f"{self.role}\n{self.content}\n"


Prompt = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The prompts of its turns, in order."""

    turns: tuple[Prompt, ...]

    @property
    def characters(self) -> int:
        return sum(map(size, self.turns))

    def cut(self, turns: int) -> Conversation:
        return Conversation(self.turns[:turns])

    def salted(self, salt: str) -> Conversation:
        """`salt` in front of each prompt's first message: nothing of it is in a cache that has not seen this salt."""
        return Conversation(tuple(_salted(prompt, salt) for prompt in self.turns))

    def steps(self) -> Iterator[tuple[Prompt, Prompt]]:
        """Each turn's prompt with the next one's."""
        return pairwise(self.turns)


def flat(prompt: Prompt) -> str:
    return "".join(message.text for message in prompt)


def size(prompt: Prompt) -> int:
    """Characters."""
    return sum(len(message.role) + len(message.content) + 2 for message in prompt)


def shared(before: Prompt, after: Prompt) -> int:
    """Characters that the two begin with alike."""
    return common(flat(before), flat(after))


def common(one: str, other: str) -> int:
    """The length of what two texts begin with alike: by halves, since comparing is quicker than looking at each."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def reusable(conversations: tuple[Conversation, ...]) -> float:
    """The share of all that is sent that the turn before has sent already: what a prefix cache can find at best, but
    for what does not fill a block."""
    sent = sum(conversation.characters for conversation in conversations)
    again = sum(shared(*step) for conversation in conversations for step in conversation.steps())
    return again / sent if sent else 0.0


def _salted(prompt: Prompt, salt: str) -> Prompt:
    first, *others = prompt
    return (Message(first.role, f"{salt}\n{first.content}"), *others)
