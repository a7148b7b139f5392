"""Text to train a tokenizer on and to talk in: invented words by a seed, frequent ones short, as in languages."""

from __future__ import annotations

import random

_ONSETS = (*"bcdfghklmnprstv", "br", "dr", "gr", "pl", "st", "tr")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
_ENDS = ("", "", "n", "r", "s", "t", "l", "nd", "st")
_ODD = ("naïve", "Straße", "日本語", "🙂", "1984", "x=[1, 2]", "don't", "—", "e.g.")


class Prose:
    """The words are the same for every seed; their order is not."""

    def __init__(self, seed: int) -> None:
        self._words = _vocabulary(random.Random(0))
        self._weights = [1 / (rank + 3) for rank in range(len(self._words))]
        self._random = random.Random(seed)

    def words(self, count: int) -> str:
        """`count` words in sentences."""
        words = self._random.choices(self._words, self._weights, k=count)
        for start in range(0, count, 12):
            words[start] = words[start].capitalize()
            if start:
                words[start - 1] += self._random.choice((".", ".", ",", "?", "!"))
        return " ".join(words)

    def lines(self, count: int) -> list[str]:
        return [self.words(self._random.randint(5, 60)) for _ in range(count)]


def _vocabulary(rng: random.Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < 1200:
        syllables = 1 + len(found) // 400
        word = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables)) + rng.choice(_ENDS)
        found[word] = None
    words = list(found)
    for place, odd in enumerate(_ODD):
        words.insert(40 + 25 * place, odd)
    return words
