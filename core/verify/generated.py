"""The built-in conversations: made from a seed, each growing by as much with every turn as it began with."""

from __future__ import annotations

from homing.core.verify.conversation import Conversation, Message, Prompt
from homing.core.verify.words import words

OPENING_WORDS = 300
QUESTION_WORDS = 120
ANSWER_WORDS = 180
SYSTEM = "You are a helpful assistant. Answer in a few plain sentences."


def generated(seed: int, count: int, turns: int) -> tuple[Conversation, ...]:
    return tuple(_conversation(seed, number, turns) for number in range(count))


def _conversation(seed: int, number: int, turns: int) -> Conversation:
    """The assistant's part is written beforehand: both runs send the same."""
    said: list[Message] = [Message("system", SYSTEM)]
    prompts: list[Prompt] = []
    for turn in range(turns):
        length = QUESTION_WORDS if turn else OPENING_WORDS
        said.append(Message("user", f"What do you make of this: {words(length, seed, number, turn, 'user')}?"))
        prompts.append(tuple(said))
        said.append(Message("assistant", f"I think that {words(ANSWER_WORDS, seed, number, turn, 'assistant')}."))
    return Conversation(tuple(prompts))
