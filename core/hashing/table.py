"""What every hash is to placement: a table of hosts, and what it can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

Hosts = Sequence[tuple[str, int]]
"""(key, weight) of every host in the data plane's order. The key is Envoy's `hash_key`, or NGINX's `host:port`."""


class Table(Protocol):
    """Maps the hash of a session key to hosts."""

    def owner(self, key: bytes) -> int | None:
        """Index of the host that the data plane picks for `key`; None when there is no host."""

    def walk(self, key: bytes) -> Iterator[int]:
        """Distinct hosts in the order in which retries would reach them, the owner first."""
