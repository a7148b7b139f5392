"""How sure the sim is of its words, and the shapes in which the two endpoints say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import xxhash

from homing.sim.tokenizer import TokenIds, Tokenizer


@dataclass(frozen=True, slots=True)
class Guess:
    """The likeliest next tokens at one place, the likeliest first, and their log probabilities."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, tokens: Sequence[int], state: int) -> Guess:
        """`state` (64 bits) decides how sure: the first gets 0.3 to 0.95, each next 30% of what is left."""
        first = 0.3 + 0.65 * (state >> 32) / (1 << 32)
        left = ((1 - first) * 0.3 * 0.7**i for i in range(len(tokens) - 1))
        return cls(tuple(tokens), tuple(math.log(p) for p in (first, *left)))


def prompt_guesses(prompt: TokenIds) -> list[Guess | None]:
    """Of each token of a prompt, but for the first, which nothing foretells. Only the token itself is told."""
    hasher = xxhash.xxh3_64()
    guesses: list[Guess | None] = []
    for token in prompt:
        guesses.append(Guess.of([token], hasher.intdigest()) if guesses else None)
        hasher.update(token.to_bytes(4, "little"))
    return guesses


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobs(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprobs]


class TextLogprobs(msgspec.Struct):
    text_offset: list[int] = []
    token_logprobs: list[float | None] = []
    tokens: list[str] = []
    top_logprobs: list[dict[str, float] | None] = []


class PromptLogprob(msgspec.Struct):
    logprob: float
    rank: int
    decoded_token: str


def chat_logprobs(tokenizer: Tokenizer, guesses: Iterable[Guess], top: int) -> ChatLogprobs:
    def entry(token: int, logprob: float) -> TokenLogprob:
        return TokenLogprob(tokenizer.token_text(token), logprob, list(tokenizer.token_bytes(token)))

    content = []
    for guess in guesses:
        entries = [entry(*pair) for pair in zip(guess.tokens, guess.logprobs, strict=True)]
        first = entries[0]
        content.append(TokenLogprobs(first.token, first.logprob, first.bytes, entries[:top]))
    return ChatLogprobs(content)


def text_logprobs(
    tokenizer: Tokenizer, tokens: Iterable[int], guesses: Iterable[Guess | None], top: int, offset: int
) -> TextLogprobs:
    """`offset`: where in the choice's text the first token begins."""
    found = TextLogprobs()
    for token, guess in zip(tokens, guesses, strict=True):
        text = tokenizer.token_text(token)
        found.tokens.append(text)
        found.text_offset.append(offset)
        offset += len(text)
        if guess is None:
            found.token_logprobs.append(None)
            found.top_logprobs.append(None)
        else:
            found.token_logprobs.append(guess.logprobs[0])
            pairs = list(zip(guess.tokens, guess.logprobs, strict=True))[: max(top, 1)]
            found.top_logprobs.append({tokenizer.token_text(t): logprob for t, logprob in pairs})
    return found


def prompt_logprobs(tokenizer: Tokenizer, prompt: TokenIds) -> list[dict[int, PromptLogprob] | None]:
    return [
        None
        if guess is None
        else {guess.tokens[0]: PromptLogprob(guess.logprobs[0], 1, tokenizer.token_text(guess.tokens[0]))}
        for guess in prompt_guesses(prompt)
    ]
