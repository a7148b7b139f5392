"""What is to be done with the bodies of a pool's requests, from the file and the record of its template; and so, which
bodies have to be read at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import xxhash

from homing.core.chat.repair import Repairs, Switches
from homing.core.chat.text import texts
from homing.core.chat.turn import Turns
from homing.core.config.context import LostSystem
from homing.core.config.models import PoolConfig
from homing.core.context.budget import Budget
from homing.core.fleet import Mode
from homing.core.policy import lesser
from homing.core.template.record import Capabilities

SAMPLED = 1 / 16
"""Of the sessions, where lost system texts are looked for in a sample."""


class Need(StrEnum):
    """Why a body is read."""

    SALT = "salt"  # every body: it gets the tenant's
    REPAIR = "repair"  # conversations: the template loses or refuses something
    BUDGET = "budget"  # conversations: a limit is set
    LOST_SYSTEM = "lost_system"  # conversations of a session: its system texts are looked for


@dataclass(frozen=True, slots=True)
class Plan:
    """`observes`: everything is found out and nothing is changed, but for what isolation demands. `places`: the picker
    chooses replicas. `share`: of the sessions, from 0 to 1, whose conversations are repaired."""

    mode: Mode = "full"
    repairs: Repairs | None = None
    share: float = 1.0
    budget: Budget | None = None
    lost_system: LostSystem = "off"
    salted: bool = False
    needs: frozenset[Need] = field(init=False, compare=False)
    """Empty where no body is read but to rewrite an alias, or to place a request that names no session."""

    def __post_init__(self) -> None:
        """Once, not for every request."""
        wanted = {
            Need.SALT: self.salted,
            Need.REPAIR: self.repairs is not None and self.share > 0,
            Need.BUDGET: self.budget is not None,
            Need.LOST_SYSTEM: self.lost_system != "off",
        }
        object.__setattr__(self, "needs", frozenset(need for need, is_so in wanted.items() if is_so))

    @classmethod
    def of(
        cls, pool: PoolConfig, record: Capabilities | None, max_model_len: int = 0, policy: Mode | None = None
    ) -> Plan:
        """Isolation holds in every mode: it is a promise to the tenants. Without a record nothing is repaired.
        `max_model_len`: of the pool's engines, 0 while nobody knows. `policy`: what operators allow at most."""
        mode = lesser(pool.mode, policy)
        salted = pool.isolation.cache_salt == "tenant"
        if mode not in ("observe", "full"):
            return cls(mode, salted=salted)
        repairs = Repairs.of(record, _switches(pool)) if record is not None else None
        budget = Budget.of(pool.context, max_model_len)
        return cls(mode, repairs or None, pool.repair.percent / 100, budget, pool.repair.lost_system, salted)

    def looks_for_lost(self, session: bytes) -> bool:
        """Whether a session's turns are compared, by its key."""
        return self.lost_system != "off" and (self.lost_system != "sample" or among(SAMPLED, session))

    @property
    def observes(self) -> bool:
        return self.mode == "observe"

    @property
    def places(self) -> bool:
        return self.mode != "off"


def among(share: float, identity: bytes) -> bool:
    """Whether that is one of the share of all: the same in every turn and in every picker."""
    return share >= 1 or xxhash.xxh64_intdigest(identity) < share * 2**64


def opening(turns: Turns) -> bytes:
    """What a conversation is known by, the same in every turn, with an id and without: what the user said first. Not
    by its system texts: some have the time in them, and some are lost on the way."""
    said: list[bytes] = []
    for turn in turns:
        if turn.role == "user":
            told = texts(turn.content)
            said += [bytes(turn.content)] if told is None else told
        elif said and not turn.is_system:
            break
    return b"\0".join(said)


def _switches(pool: PoolConfig) -> Switches:
    repair = pool.repair
    return Switches(
        system=repair.system == "auto",
        developer=repair.developer == "auto",
        turns=repair.turns == "auto",
        tools=repair.tools == "auto",
        think=repair.think == "strip",
    )
