"""The key that a user may have meant."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 40  # characters; the comparison is quadratic
_NEAR = 2  # edits
_SHORTEST_START = 3


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The key of `known` that `word` begins, or the nearest within two edits and less than half the word."""
    word = word.lower().replace("-", "_")
    if len(word) > _LONGEST:
        return None
    keys = tuple(known)
    started = next((k for k in keys if len(word) >= _SHORTEST_START and k.startswith(word)), None)
    distance, key = min(((edits(word, k), k) for k in keys), default=(_LONGEST, ""))
    if distance <= _NEAR and 2 * distance < len(word):
        return key
    return started


def edits(a: str, b: str) -> int:
    """Levenshtein's distance: insertions, deletions and replacements between `a` and `b`."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]
