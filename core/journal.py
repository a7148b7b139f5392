"""What one listener (a sibling, a store) is still to be told of the table of homes, and the form of the telling."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import msgspec

MAX_PENDING = 65_536
"""Changes that wait for one listener. Beyond, it is told the whole table again instead."""

Digest = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
ReplicaId = Annotated[str, msgspec.Meta(max_length=128)]


class Word(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one picker says of one session. Of two, `outranks` tells which home holds; the later use holds by itself.

    `replica` empty: the session was closed. `heir` empty: none. `stamp`: when it came to live there, seconds since the
    epoch. `idle_s`: since its last use, when this was said: an age, since clocks differ. Fields are only added at the
    end.
    """

    digest: Digest
    replica: ReplicaId
    heir: ReplicaId
    stamp: float
    idle_s: float
    tokens: int = 0

    def outranks(self, stamp: float, replica: str, heir: str) -> bool:
        """The later home holds; at the same moment the greater text, so that everybody decides alike."""
        return (self.stamp, self.replica, self.heir) > (stamp, replica, heir)


class Journal:
    """Digests of sessions of which there is something to tell, each once, in the order of their first change.

    `lost`: it was full, and changes are missing from it.
    """

    __slots__ = ("_everything", "_max", "_pending", "lost")

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self._max = max_pending
        self._pending: dict[bytes, None] = {}
        self._everything: list[bytes] = []
        self.lost = False

    def __len__(self) -> int:
        return len(self._pending) + len(self._everything)

    def note(self, digest: bytes) -> None:
        if len(self._pending) < self._max:
            self._pending[digest] = None
        elif digest not in self._pending:
            self.lost = True

    def take(self, at_most: int) -> list[bytes]:
        """Up to `at_most`; they are not pending any more. What changed comes before what is told again."""
        taken = list(islice(self._pending, at_most))
        for digest in taken:
            del self._pending[digest]
        if rest := at_most - len(taken):
            taken += self._everything[-rest:]
            del self._everything[-rest:]
        return taken

    def restart(self, digests: Iterable[bytes]) -> None:
        """The whole table is to be told, beside what is pending: a session that was closed is not in the table."""
        self._everything = list(digests)
        self.lost = False
