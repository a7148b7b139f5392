"""What a cost is worked out from: the request (`Asked`) and one replica (`There`). Plain numbers, so that each term is
a formula and its test a table."""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from homing.core.fleet import Replica
from homing.core.placement.settings import Settings


class Asked(msgspec.Struct):
    """One request, and the pool as it is now. Sizes in tokens."""

    tokens: float  # its prompt
    settings: Settings = msgspec.field(default_factory=Settings)
    size_bytes: int = 0  # of its body, 0 if unknown
    home: str | None = None  # where the session lives, if it can go on there
    home_expected: float = 0.0  # tokens of the prompt that it has had before
    home_cached: float = 0.0  # of those, as many as should be in its cache still
    home_size: float = 0.0  # tokens that the session counts for in the working set there
    anywhere_cached: float = 0.0  # tokens that are expected in any cache, since other sessions begin alike
    owner: str | None = None  # the hash's, where the id is the client's and has no home yet
    begins: bool = False  # the session's first request
    held: Mapping[str, int] | None = None  # tokens by replica, where the prefix index has looked
    adapter: str | None = None  # the LoRA adapter that it asks for
    subset: Set[str] | None = None  # the only addresses allowed, where a hop before us said so
    further_turns: float = 8.0  # that a session has, learned
    later_uncached: float = 1000.0  # tokens that a later turn has to prefill, learned
    crowd: float = 0.0  # requests that wait at a replica other than home, on the mean
    fewest_sessions: float = 0.0  # active at any replica, for its speed

    @property
    def wishes(self) -> bool:
        """Whether not every replica that serves at all may serve it."""
        return self.adapter is not None or self.subset is not None


class There(msgspec.Struct):
    """One replica, as far as it matters to the request."""

    replica: Replica
    waiting: float = 0.0  # tokens to be prefilled before the request
    in_flight: int = 0
    sessions: float = 0.0  # active lately
    working_set: float = 0.0  # tokens of their contexts, without the request's own session
    capacity: float = 400_000.0  # tokens of its KV cache
    cached: float = 0.0  # tokens of the prompt that are expected in its cache
    speed: float = 1.0  # against the mean of the pool
    context: float = 0.0  # tokens of the prompts in flight there
