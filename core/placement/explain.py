"""The receipt of one session: where its next turn would go if it came now, and why. Looking changes nothing."""

from __future__ import annotations

import msgspec

from homing.core.placement import cost
from homing.core.placement.asked import Asked
from homing.core.placement.decision import Arrival, Reason
from homing.core.placement.home import Placer
from homing.core.placement.pools import CompiledPool
from homing.core.placement.weighing import Weighed
from homing.core.session import SessionKey

FALLBACK = "fallback"
"""The reason that Envoy gives itself (docs/headers.md), where no replica is fit."""


class Offer(msgspec.Struct, frozen=True):
    """What one replica would cost, in tokens of prefill, and what is known of it. `speed`: against the pool's mean."""

    replica: str
    cost: float
    terms: dict[str, float]
    waiting_tokens: float
    in_flight: int
    sessions: float
    working_set_tokens: float
    cached_tokens: float
    speed: float


class Receipt(msgspec.Struct, frozen=True):
    """`session` is the keyed hash under which it is known; `hash_owner` where Envoy alone would send it; `home` where
    it lives, None if it is not known here, and `pinned`: that is not where its hash says. `prompt_tokens` are expected
    of its next turn. `offers` are in the order of their cost. `weighed`: the choice was made by cost; not where a home
    is content, or lost. `choice` is None when nobody can serve it: then Envoy decides alone. `reason`: what
    x-homing-decision would say."""

    pool: str
    session: str
    hash_owner: str | None
    home: str | None
    pinned: bool
    idle_s: float | None
    prompt_tokens: float
    further_turns: float
    reason: str
    choice: str | None
    runner_up: str | None
    weighed: bool
    offers: tuple[Offer, ...]


def explain(
    placer: Placer, pool: CompiledPool, key: SessionKey, now: float, size_bytes: int = 0, adapter: str | None = None
) -> Receipt:
    """`size_bytes` of the next turn's body; without it, that is what the last one was and what turns bring. `adapter`:
    the LoRA adapter that it names."""
    pool_id = pool.pool.id
    digest = placer.digest(pool_id, key)
    asked = placer.asked(pool, Arrival(key, True, size_bytes, adapter), now, digest)
    weighed = sorted(placer.scales.weigh(pool, asked, now, learn=False), key=lambda w: w.cost)
    owner, home, last = pool.owner(key.text), placer.homes.get(digest, now), placer.homes.size(digest)
    owner_id = owner.id if owner is not None else None
    reason: str = Reason.HASH
    choice, by_cost = weighed[0].there.replica.id if weighed else None, True
    if asked.home is not None:
        resident = pool.member(asked.home)
        known = Reason.HOME if home is not None else Reason.HASH
        if resident is not None and placer.scales.content(pool_id, asked, resident, now):
            choice, by_cost = asked.home, False
        reason = known if choice == asked.home else Reason.LEFT
    elif home is not None:
        there = placer.refuge(pool, key, asked, digest, now)
        reason, choice, by_cost = Reason.MOVED, there.replica.id if there is not None else None, False
    elif choice != owner_id:
        reason = Reason.PLACED
    if choice is None:
        reason, by_cost = FALLBACK, False
    return Receipt(
        pool_id,
        digest.hex(),
        owner_id,
        home,
        home is not None and home != owner_id,
        now - last[0] if home is not None and last is not None else None,
        round(asked.tokens, 1),
        round(asked.further_turns, 2),
        reason,
        choice,
        next((w.there.replica.id for w in weighed if w.there.replica.id != choice), None),
        by_cost,
        tuple(_offer(asked, w) for w in weighed),
    )


def _offer(asked: Asked, weighed: Weighed) -> Offer:
    there = weighed.there
    return Offer(
        there.replica.id,
        round(weighed.cost, 1),
        {name: round(tokens, 1) for name, tokens in cost.itemised(asked, there).items()},
        round(there.waiting, 1),
        there.in_flight,
        there.sessions,
        round(there.working_set, 1),
        round(there.cached, 1),
        round(there.speed, 3),
    )
