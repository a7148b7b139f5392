"""What a source of replicas is. Each kind is a module beside this one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """A replica as a source sees it. `address` is host:port; a name is resolved later."""

    id: str
    address: str
    weight: int = 1
    rank: int | None = None  # as in Replica


class SourceError(Exception):
    """The source does not answer, or not sensibly; its text says why. It is asked again."""


class Source(Protocol):
    def follow(self) -> AsyncIterator[tuple[Found, ...]]:
        """The whole set, once at the beginning and again after every change. Raises SourceError; never just ends."""
