"""How many sessions a change of membership moves: by the hash alone, measured over a sample of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

SAMPLE = 10_000
"""Keys: a share is right to about half a percent."""

Owner = Callable[[bytes], str | None]
"""Whom a hash gives a key to, by name."""


def sample(count: int = SAMPLE) -> tuple[bytes, ...]:
    """Keys as sessions have them, always the same."""
    return tuple(b"tenant-%d/%08x-session" % (i % 97, i * 2_654_435_761 % 2**32) for i in range(count))


def moved(before: Owner, after: Owner, keys: Sequence[bytes]) -> float:
    """The share of the keys that get another owner."""
    return sum(before(key) != after(key) for key in keys) / len(keys)


def must_move(before: Iterable[tuple[str, int]], after: Iterable[tuple[str, int]]) -> float:
    """The least share that any hash can move: what the shares by weight grow by, summed over those that grow."""
    old, new = _shares(before), _shares(after)
    return sum(max(0.0, share - old.get(name, 0.0)) for name, share in new.items())


def _shares(hosts: Iterable[tuple[str, int]]) -> dict[str, float]:
    weights = dict(hosts)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
