"""What clients send: conversations with their times, their texts, and the answers that are right.

The answers are the model's own (`homing.sim.words`): the sim gives the same ones on every replica, so a later turn
holds what the turn before was answered, as it does in life, and every answer can be checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random

import msgspec

from bench.placement.engine import BLOCK, Request
from bench.placement.workloads import STRIDE
from homing.sim.chat_template import ChatTemplate, RenderOptions
from homing.sim.tokenizer import ByteTokenizer
from homing.sim.words import _WORDS as WORDS
from homing.sim.words import WordModel

MODEL = "bench-model"


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Body(msgspec.Struct):
    """Members in the order in which openai-python sends them."""

    messages: Sequence[Message]
    max_tokens: int
    stream: bool = True
    stream_options: _StreamOptions = _StreamOptions()
    model: str = MODEL


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `due_s` is simulated time since the beginning."""

    due_s: float
    session: int
    number: int  # of the session's turns
    messages: tuple[Message, ...]
    answer_tokens: int
    answer: str
    prompt_tokens: int

    def body(self) -> bytes:
        return msgspec.json.encode(_Body(self.messages, self.answer_tokens))


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to a replica at `at_s`."""

    at_s: float
    replica: int
    kind: str  # dies | drains | joins


@dataclass(frozen=True, slots=True)
class Work:
    """The same for every contender. `slow`: replicas and how many times longer everything takes there."""

    name: str
    turns: Sequence[Turn]
    sessions: int
    replicas: int
    joining: frozenset[int] = frozenset()
    changes: tuple[Change, ...] = ()
    slow: dict[int, float] = field(default_factory=dict)

    def digest(self) -> str:
        """Of all that is sent and when."""
        seen = hashlib.blake2b(digest_size=16)
        for turn in self.turns:
            seen.update(f"{turn.due_s!r} {turn.session} {turn.number} ".encode() + turn.body())
        return seen.hexdigest()

    def session_id(self, session: int) -> str:
        """As a client would choose one: nothing in it tells its neighbour's."""
        return hashlib.blake2b(f"{self.name}/{session}".encode(), digest_size=12).hexdigest()


class Speaker:
    """Writes texts, and knows what the model answers."""

    def __init__(self) -> None:
        self._tokenizer = ByteTokenizer()
        self._template = ChatTemplate()
        self._words = WordModel(self._tokenizer)
        self._blocks: Callable[[int], str] = cache(lambda number: said(BLOCK, f"block {number}"))

    def blocks(self, numbers: Iterable[int]) -> str:
        """512 tokens for each; equal numbers are equal texts."""
        return " ".join(map(self._blocks, numbers))

    def answer(self, messages: Sequence[Message], tokens: int) -> tuple[str, int]:
        """The model's answer of so many tokens, and how many the prompt has."""
        plain = [{"role": m.role, "content": m.content} for m in messages]
        prompt = self._tokenizer.encode(self._template.render(plain, RenderOptions()))
        words = self._words.start(prompt)
        return self._tokenizer.decode([words.take() for _ in range(tokens)]), len(prompt)


def said(tokens: int, what: str) -> str:
    """A text of so many tokens, always the same for the same `what`."""
    return " ".join(Random(what).choices(WORDS, k=max(tokens, 1)))


def conversations(requests: Sequence[Request], speaker: Speaker) -> list[Turn]:
    """Requests of `bench.placement.workloads` as conversations: the leading blocks of one owner are the system prompt,
    what a prompt has more than the turn before it had and was answered is what the user says. A prompt that is shorter
    than the one before begins the conversation anew."""
    names = {name: i for i, name in enumerate(dict.fromkeys(r.session for r in requests))}
    past: dict[str, tuple[tuple[Message, ...], int]] = {}  # messages with the answer, and their tokens
    turns: list[Turn] = []
    counts: dict[str, int] = {}
    for request in requests:
        number = counts[request.session] = counts.get(request.session, -1) + 1
        system = [block for block in request.blocks if block // STRIDE == request.blocks[0] // STRIDE]
        before, tokens = past.get(request.session, ((), 0))
        if not before or request.tokens <= tokens:
            before, tokens = (Message("system", speaker.blocks(system)),), len(system) * BLOCK
        text = said(request.tokens - tokens, f"{request.session} {number}")
        messages = (*before, Message("user", text))
        turn = _turn(request.arrives, names[request.session], number, messages, request.answer, speaker)
        past[request.session] = ((*messages, Message("assistant", turn.answer)), request.tokens + request.answer)
        turns.append(turn)
    return turns


def apart(requests: Sequence[Request], speaker: Speaker) -> list[Turn]:
    """Each request by itself: its blocks, the first of them as the system prompt, and what is left over."""
    names = {name: i for i, name in enumerate(dict.fromkeys(r.session for r in requests))}
    turns: list[Turn] = []
    counts: dict[str, int] = {}
    for i, request in enumerate(requests):
        number = counts[request.session] = counts.get(request.session, -1) + 1
        full = request.blocks[: request.tokens // BLOCK]
        rest = said(request.tokens - len(full) * BLOCK, f"rest {i}")
        texts = [speaker.blocks(full[1:]), rest] if len(full) > 1 else [rest]
        system = (Message("system", speaker.blocks(full[:1])),) if full else ()
        messages = (*system, Message("user", " ".join(texts)))
        turns.append(_turn(request.arrives, names[request.session], number, messages, request.answer, speaker))
    return turns


def _turn(
    due_s: float, session: int, number: int, messages: tuple[Message, ...], answer_tokens: int, speaker: Speaker
) -> Turn:
    answer_tokens = max(answer_tokens, 1)
    answer, prompt_tokens = speaker.answer(messages, answer_tokens)
    return Turn(due_s, session, number, messages, answer_tokens, answer, prompt_tokens)
