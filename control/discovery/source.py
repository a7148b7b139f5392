"""What a source of replicas is. Each kind is a module beside this one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from homing.core.fleet import ranked


@dataclass(frozen=True, slots=True)
class Found:
    """A replica as a source sees it. `address` is host:port; a name is resolved later."""

    id: str
    address: str
    weight: int = 1
    rank: int | None = None  # as in Replica
    tls: str = ""  # the same


class SourceError(Exception):
    """The source does not answer, or not sensibly; its text says why. It is asked again."""


def by_rank(found: Iterable[Found], dp_size: int) -> tuple[Found, ...]:
    """A replica for each of the `dp_size` data-parallel ranks of every address; 1: as they are."""
    if dp_size == 1:
        return tuple(found)
    return tuple(replace(each, id=ranked(each.id, rank), rank=rank) for each in found for rank in range(dp_size))


class Source(Protocol):
    def follow(self) -> AsyncIterator[tuple[Found, ...]]:
        """The whole set, once at the beginning and again after every change. Raises SourceError; never just ends."""
