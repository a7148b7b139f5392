"""The replicas of one run, as gateways are told of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """`kv_events` and `kv_replay` are ZeroMQ endpoints; empty: it tells no KV events."""

    id: str
    port: int
    kv_events: str = ""
    kv_replay: str = ""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"
