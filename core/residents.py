"""What lives at a replica, as one picker knows it: what a drain waits for. The form of a picker's GET /replicas."""

from __future__ import annotations

import msgspec

from homing.core.fleet import State


class Residents(msgspec.Struct, frozen=True):
    """`state` in the picker's own fleet: a picker that has not heard of a drain may still send new sessions.
    `sessions`: those not idle for too long; `streams`: requests whose answer has not ended."""

    pool: str
    replica: str
    state: State
    sessions: int
    streams: int


class Census(msgspec.Struct, frozen=True):
    """Every replica of the picker's fleet. `fleet` is its version, empty before the first. `shared`: the sessions are
    those of all pickers together, not this one's alone."""

    fleet: str
    shared: bool
    replicas: tuple[Residents, ...]
