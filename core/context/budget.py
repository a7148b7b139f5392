"""How much of a conversation fits a model: told before an engine is asked, or trimmed to fit.

Tokens are estimated from bytes, since a count would be a call to the engine for every request. Two estimates, each on
the safe side: a request is refused only if it is too long at 8 bytes a token, which no tokenizer reaches over a whole
conversation; trimming begins at 3 bytes a token. What lies between, the engine counts, and refuses in its own words.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from homing.core.chat.body import Members
from homing.core.chat.text import inside, items, part_text
from homing.core.chat.turn import Turn, Turns
from homing.core.config.context import ContextConfig

MOST_BYTES_PER_TOKEN = 8
FEWEST_BYTES_PER_TOKEN = 3
TOKENS_PER_IMAGE = 1000
STEPS = 4
"""Trimming takes away whole quarters of the limit, so that the prompt's beginning stays for many turns."""

ANSWER_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class Over:
    """A request that cannot fit, in tokens, each at least."""

    limit: int
    prompt: int
    answer: int

    @property
    def message(self) -> str:
        excess = self.prompt + self.answer - self.limit
        return (
            f"This model's maximum context length is {self.limit} tokens. However, the request has at least"
            f" {self.prompt} tokens in its messages and asks for {self.answer} in the answer, at least {excess} too"
            " many. Please shorten the messages or the answer."
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """`trims`: the oldest turns go where it is exceeded; else the request is refused."""

    limit: int
    trims: bool = False

    @classmethod
    def of(cls, context: ContextConfig, max_model_len: int) -> Budget | None:
        """`max_model_len`: of the pool's engines, 0 while nobody knows. None where there is no limit."""
        limit = context.limit(max_model_len)
        return cls(limit, context.over == "trim") if limit else None

    def over(self, body: Members, turns: Turns) -> Over | None:
        """None if the conversation may fit."""
        prompt = (sum(map(_text_bytes, turns)) + _bytes(body.get("tools"))) // MOST_BYTES_PER_TOKEN
        answer = _answer(body)
        return Over(self.limit, prompt, answer) if prompt + answer > self.limit else None

    def trim(self, body: Members, turns: Turns) -> Turns:
        """The turns without the oldest exchanges, as many as have to go. An exchange is a user's turn and all up to the
        next one's, so calls and results go together; system messages stay, and so does the last exchange. The same
        object where all fits."""
        room = self.limit - _answer(body) - _bytes(body.get("tools")) // FEWEST_BYTES_PER_TOKEN
        sizes = [_tokens(turn) for turn in turns]
        excess = sum(sizes) - max(room, 0)
        if excess <= 0:
            return turns
        step = max(1, self.limit // STEPS)
        to_go = -(-excess // step) * step
        gone: set[int] = set()
        saved = 0
        for exchange in _exchanges(turns)[:-1]:
            if saved >= to_go:
                break
            gone.update(exchange)
            saved += sum(sizes[i] for i in exchange)
        return [turn for i, turn in enumerate(turns) if i not in gone] if gone else turns


def _exchanges(turns: Turns) -> list[list[int]]:
    """The places of each exchange's turns, system messages left out."""
    exchanges: list[list[int]] = []
    for i, turn in enumerate(turns):
        if turn.is_system:
            continue
        if not exchanges or (_asks(turn) and not _asks(turns[exchanges[-1][-1]])):
            exchanges.append([])
        elif len(exchanges) > 1 and _asks(turns[exchanges[-1][-1]]) and turn.is_result:
            exchanges[-2:] = [exchanges[-2] + exchanges[-1]]  # the user spoke before the result was there
        exchanges[-1].append(i)
    return exchanges


def _asks(turn: Turn) -> bool:
    """A user's turn, but for one of Anthropic's that brings results of tools."""
    return turn.role == "user" and not turn.brings_results


def _tokens(turn: Turn) -> int:
    images = sum(part_text(p) is None for p in items(turn.content) or ())
    return _text_bytes(turn) // FEWEST_BYTES_PER_TOKEN + images * TOKENS_PER_IMAGE


def _text_bytes(turn: Turn) -> int:
    """Bytes of text as the tokenizer gets them; an image's are not of that kind."""
    other = sum(_bytes(turn.members.get(name)) for name in ("tool_calls", "arguments", "output"))
    if (text := inside(turn.content)) is not None:
        return other + _bytes(text)
    return other + sum(_bytes(part_text(p)) for p in items(turn.content) or ())


def _bytes(escaped: bytes | None) -> int:
    """UTF-8 has at most 3 bytes where JSON may have the 6 of an escape."""
    return 0 if escaped is None else len(escaped) - 3 * bytes(escaped).count(b"\\u")


def _answer(body: Members) -> int:
    for name in ANSWER_LIMITS:
        if (raw := body.get(name)) is not None:
            try:
                return max(0, msgspec.json.decode(raw, type=int))
            except msgspec.DecodeError:
                return 0
    return 0
