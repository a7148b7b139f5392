"""The 200 conversations that both engines get, request by request in one order.

What a cache finds depends on that order, so requests follow one another; conversations are interleaved in groups, and
some come back late, when parts of them have been evicted. Assistant turns are scripted: both engines see the same
prompts. Answers are forced to one token (`allowed_token_ids`), so that blocks filled with answers are the same too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from bench.calibration.model import VOCABULARY
from bench.calibration.prose import Prose

FORCED_TOKEN = 300
FIRST_PLAIN_TOKEN = 3  # after the special ones
GROUP = 8

CHATS, SALTED_PAIRS, BORDERS, TEXTS = 120, 15, 40, 10
TOTAL = CHATS + 2 * SALTED_PAIRS + BORDERS + TEXTS

# Words of the user by turn: what is not reused differs clearly, and with it the time to first token.
CHAT_WORDS = (1450, 40, 1900, 160)
TIMED = "chat"

Body = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    """One turn. `kind` says what it is there for; `turn` counts from 1."""

    conversation: int
    turn: int
    kind: str
    path: str
    body: Body
    late: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.conversation}, turn {self.turn}"


def requests(model: str, block_size: int, seed: int = 2) -> list[Request]:
    """All of them, in order."""
    rng = random.Random(seed)
    prose = Prose(seed)
    systems = [prose.words(words) for words in (20, 60, 110, 160, 240, 400)]
    made: list[list[Request]] = []
    for number in range(CHATS):
        made.append(list(_chat(number, model, prose, rng, systems[number % len(systems)])))
    for _ in range(SALTED_PAIRS):
        words = prose.words(420)
        for salt in rng.choice((("a", "b"), ("a", "a"), ("a", None))):
            made.append(list(_salted(len(made), model, prose, words, salt)))
    for number in range(BORDERS):
        made.append(list(_border(len(made), model, rng, block_size, number % 5 - 2)))
    for number in range(TEXTS):
        made.append(list(_text(len(made), model, prose, number)))
    rng.shuffle(made)
    return list(_interleaved(made))


def _interleaved(conversations: Sequence[list[Request]]) -> Iterator[Request]:
    """Turn by turn over a group; every fifth conversation's last turn comes one, two or three groups later."""
    held: list[list[Request]] = [[] for _ in range(-(-len(conversations) // GROUP) + 4)]
    for number, start in enumerate(range(0, len(conversations), GROUP)):
        group = conversations[start : start + GROUP]
        for place, turns in enumerate(group, start):
            if place % 5 == 0:
                held[number + 1 + place // 5 % 3].append(replace(turns.pop(), late=True))
        for turns_of_all in zip_longest(*group):
            yield from (request for request in turns_of_all if request is not None)
        yield from held[number]
    for left in held[number + 1 :]:
        yield from left


def _chat(number: int, model: str, prose: Prose, rng: random.Random, system: str) -> Iterator[Request]:
    messages: list[dict[str, str]] = [{"role": "system", "content": system}]
    for turn, words in enumerate(CHAT_WORDS, 1):
        messages.append({"role": "user", "content": prose.words(rng.randint(words - words // 20, words))})
        body = {
            **_forced(model, rng.choice((1, 2, 5))),
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        yield Request(number, turn, TIMED, "/v1/chat/completions", body)
        messages.append({"role": "assistant", "content": prose.words(rng.randint(5, 40))})


def _salted(number: int, model: str, prose: Prose, words: str, salt: str | None) -> Iterator[Request]:
    """One of two conversations that begin with the same words."""
    messages = [{"role": "user", "content": words}]
    for turn in (1, 2, 3):
        body: dict[str, object] = {**_forced(model, 2), "messages": list(messages)}
        if salt is not None:
            body["cache_salt"] = salt * 20
        yield Request(number, turn, "salted", "/v1/chat/completions", body)
        messages.append({"role": "assistant", "content": prose.words(20)})
        messages.append({"role": "user", "content": prose.words(90)})


def _border(number: int, model: str, rng: random.Random, block_size: int, off: int) -> Iterator[Request]:
    """Prompts of ids that end `off` tokens from a block's border; then the same again, then with the answer in it."""
    blocks = rng.randint(1, 6)
    ids = _ids(rng, blocks * block_size + off)
    answer = rng.choice((1, 2, 3, 4, block_size - off, block_size + 1, 2 * block_size - off))
    answered = ids + [FORCED_TOKEN] * answer
    turns = ((ids, 1), (ids, answer), (answered, 1), (answered + _ids(rng, block_size - off), 2))
    for turn, (prompt, max_tokens) in enumerate(turns, 1):
        yield Request(number, turn, "border", "/v1/completions", {**_forced(model, max_tokens), "prompt": prompt})


def _text(number: int, model: str, prose: Prose, variant: int) -> Iterator[Request]:
    """Text completions; some turns ask for the prompt's log probabilities, which switches reading the cache off."""
    text = prose.words(300)
    for turn in (1, 2, 3, 4):
        body: dict[str, object] = {**_forced(model, 3), "prompt": text}
        if turn == 3:
            body |= ({"echo": True, "logprobs": 1}, {"prompt_logprobs": 1}, {"n": 2}, {"echo": True})[variant % 4]
        yield Request(number, turn, "text", "/v1/completions", body)
        text += " " + prose.words(60)


def _forced(model: str, max_tokens: int) -> dict[str, object]:
    return {
        "model": model,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "allowed_token_ids": [FORCED_TOKEN],
    }


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(FIRST_PLAIN_TOKEN, VOCABULARY) for _ in range(count)]
