"""One request's prompt as marks: digests of its beginning up to some points, so that two prompts can be compared."""

from __future__ import annotations

import msgspec
from xxhash import xxh3_64

BYTES_PER_TOKEN = 4
"""A guess that fits English prose with common tokenizers; only ratios of such counts decide anything."""

SLICE_BYTES = 4_096
"""Within a long message there is a mark after so many bytes: system texts often differ only in their last lines."""

MAX_MARKS = 512
"""Of a longer prompt only the beginning is marked."""


class Prompt(msgspec.Struct, frozen=True):
    """`marks[i]` stands for everything up to a point, and `tokens[i]` is about how many tokens that is."""

    marks: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens up to the last mark."""
        return self.tokens[-1] if self.tokens else 0


class Marking:
    """Makes a prompt of what comes in the order of the rendered text. `seed` keeps pools and tenants apart: a client
    that does not know it can aim at nobody's marks."""

    __slots__ = ("_bytes", "_hash", "_marks", "_tokens")

    def __init__(self, seed: bytes) -> None:
        self._hash = xxh3_64(seed)
        self._bytes = 0
        self._marks: list[int] = []
        self._tokens: list[int] = []

    def add(self, role: str, data: bytes) -> None:
        """One message, or what stands before all messages (tools)."""
        if len(self._marks) >= MAX_MARKS:
            return
        begun = role.encode("utf-8", "surrogatepass") + b"\0"
        cut = 0
        while len(data) - cut > SLICE_BYTES and len(self._marks) < MAX_MARKS - 1:
            self._mark(begun, data[cut : cut + SLICE_BYTES])
            begun = b""
            cut += SLICE_BYTES
        self._mark(begun, data[cut:] + b"\0")

    def prompt(self) -> Prompt:
        return Prompt(tuple(self._marks), tuple(self._tokens))

    def _mark(self, begun: bytes, data: bytes) -> None:
        """`begun` is no part of what is counted."""
        hashed = self._hash
        hashed.update(begun + data)
        self._bytes += len(data)
        self._marks.append(hashed.intdigest())
        self._tokens.append(-(-self._bytes // BYTES_PER_TOKEN))
