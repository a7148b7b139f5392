"""Where engines publish their KV events, and what is counted of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from homing.core.config.models import EngineConfig
from homing.core.fleet import Replica
from homing.core.placement.load import Place


@dataclass(frozen=True, slots=True)
class Source:
    """Where one replica publishes its KV events, and where it says them again ("" for nowhere)."""

    place: Place
    events: str
    replay: str

    @classmethod
    def of(cls, pool_id: str, replica: Replica, engine: EngineConfig) -> Source:
        """A data-parallel rank has the port of the first one plus its number (vLLM's offset_endpoint_port)."""
        host = replica.address.rpartition(":")[0]

        def at(endpoint: str) -> str:
            filled = endpoint.replace("{host}", host).replace("{id}", replica.id)
            if not replica.rank or not filled.startswith("tcp://"):
                return filled
            base, _, port = filled.rpartition(":")
            return f"{base}:{int(port) + replica.rank}"

        events, replay = map(at, engine.endpoints)
        return cls((pool_id, replica.id), events, replay)


class Fate(StrEnum):
    """What became of a batch of events: the values of homing_kv_batches_total's label `outcome`."""

    APPLIED = "applied"
    LOST = "lost"  # missed, and not kept by the engine
    MALFORMED = "malformed"
    UNANSWERED = "unanswered"  # a whole replay that did not come


@dataclass(slots=True)
class KvCounts:
    """As plain numbers, written and read on one loop."""

    batches: Counter[tuple[str, Fate]] = field(default_factory=Counter)  # (pool, fate)
    passed_over: Counter[str] = field(default_factory=Counter)  # pool: events that the index does not follow
    restarts: Counter[str] = field(default_factory=Counter)  # pool
