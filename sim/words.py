"""What the sim writes: words drawn by a hash of every token before them.

So the same prompt and seed give the same answer on every replica, as greedy decoding does, and a prompt that ends
with the first half of an answer is continued with the other half.
Each word is one token of `ByteTokenizer`, and text made of them is cut into the same tokens again: an answer that a
client sends back in the next turn is found in the prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from homing.sim.logprobs import Guess
from homing.sim.tokenizer import TokenIds, Tokenizer

# Behind a line break or a special token, where no space belongs.
_FIRST = ("Blue", "Calm", "Dawn", "Each", "Fair", "Gold", "Here", "Iron", "Just", "Kind", "Late", "Many", "Next",
          "Once", "Pale", "Rain", "Some", "That", "Upon", "Very", "When")  # fmt: skip
_WORDS = """
    air and any arm art ask bay bed big box bus but can cap car cat cup cut day dew did dog dry ear eat egg end eye
    fan far few fig fit fly fog for fox fun gap get gin got had hat hay hen her hid him his hot how hut ice ink its
    jam jar job key kit lab lap law lay leg let lid lip log lot low man map may men mix mud net new nor not now nut
    oak oar oil old one our out owl own pan pay pen pet pie pin pot put ran raw red rib rim rod row run sat saw sea
    see set she shy sit six sky son sow sun tap tar tea ten the tie tin tip top toy try two use van vet war was wax
    way web wet who why win won yes yet you zoo
""".split()  # noqa: SIM905 - as a list literal it would be a page long


class WordModel:
    """Holds the words as tokens; one a process. `seed` makes another model of it."""

    def __init__(self, tokenizer: Tokenizer, seed: int = 0) -> None:
        self._seed = seed.to_bytes(8, "little", signed=True)
        self._first = _single_tokens(tokenizer, list(_FIRST))
        self._next = _single_tokens(tokenizer, [" " + word for word in _WORDS])
        self._tokenizer = tokenizer

    def start(self, prompt: TokenIds, variant: bytes = b"", keep: int = 0, allowed: Sequence[int] = ()) -> Words:
        """The answer to `prompt`. `variant` tells apart what is sampled differently: request seed, choice.
        `keep` is how many guesses to remember of each token; 0 remembers nothing. `allowed` are the only tokens to
        write with; empty: the model's own."""
        if allowed:
            words = tuple(allowed)
            return Words(xxhash.xxh3_64(self._seed + variant + prompt.tobytes()), words, words, keep)
        last = self._tokenizer.token_bytes(prompt[-1]) if prompt else b""
        first = self._first if not last or last.isspace() else self._next
        return Words(xxhash.xxh3_64(self._seed + variant + prompt.tobytes()), first, self._next, keep)


class Words:
    """One answer, token by token, without end."""

    __slots__ = ("_candidates", "_hash", "_keep", "_next", "guesses", "stopped")

    def __init__(self, state: xxhash.xxh3_64, first: tuple[int, ...], following: tuple[int, ...], keep: int) -> None:
        self.stopped = False  # never: the sim has no end-of-answer token
        self.guesses: list[Guess] = []  # of each token taken
        self._hash = state
        self._candidates = first
        self._next = following
        self._keep = keep

    def take(self) -> int:
        state = self._hash.intdigest()
        token = self._candidates[state % len(self._candidates)]
        if self._keep:
            self.guesses.append(Guess.of(self._likeliest(state), state))
        self._hash.update(token.to_bytes(4, "little"))
        self._candidates = self._next
        return token

    def _likeliest(self, state: int) -> list[int]:
        """The one that is taken, then its neighbours."""
        size = len(self._candidates)
        return [self._candidates[(state + i) % size] for i in range(min(self._keep, size))]


def _single_tokens(tokenizer: Tokenizer, texts: list[str]) -> tuple[int, ...]:
    """The tokens of those texts that are one token; with a foreign tokenizer, the first token of each."""
    encoded = [tokenizer.encode(text) for text in texts]
    single = [ids[0] for ids in encoded if len(ids) == 1]
    return tuple(dict.fromkeys(single or (ids[0] for ids in encoded)))
