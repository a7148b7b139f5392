"""A receipt says what placement would do, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from homing.core.chains import Chains
from homing.core.fleet import Pool, Replica
from homing.core.placement.cost import TERMS
from homing.core.placement.decision import Arrival, Decision, Reason
from homing.core.placement.explain import Receipt, explain
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.placement.pools import CompiledPool
from homing.core.session import Homes, SessionKey

REPLICAS = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(4))
POOL = CompiledPool.of(Pool("p", "model", replicas=REPLICAS))
KEY = SessionKey(b"t", b"s", b"t/s")
OWNER = next(POOL.walk(KEY.text)).id


class Dice:
    """Breaks ties, while it may be thrown."""

    allowed = True

    def __call__(self, n: int) -> int:
        assert self.allowed
        return 0


def placer(break_tie: Callable[[int], int] = lambda n: 0) -> Placer:
    return Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", break_tie)


def place(p: Placer, now: float = 0.0, size_bytes: int = 4000, pool: CompiledPool = POOL) -> None:
    decision = p.place(pool, Arrival(KEY, True, size_bytes), now)
    assert decision is not None
    p.begun(decision, now)


def busy(p: Placer, replica_id: str, tokens: float, now: float = 0.0) -> None:
    p.load.begin(("p", replica_id), tokens, now)


def without_owner() -> CompiledPool:
    return CompiledPool.of(replace(POOL.pool, replicas=tuple(r for r in REPLICAS if r.id != OWNER)))


Situation = Callable[[Placer], CompiledPool]


def unknown(p: Placer) -> CompiledPool:
    return POOL


def owner_busy(p: Placer) -> CompiledPool:
    busy(p, OWNER, 10_000)
    return POOL


def at_home(p: Placer) -> CompiledPool:
    place(p)
    return POOL


def home_swamped(p: Placer) -> CompiledPool:
    place(p)
    busy(p, OWNER, 50_000)
    return POOL


def home_gone(p: Placer) -> CompiledPool:
    place(p)
    return without_owner()


@pytest.mark.parametrize(
    ("situation", "reason", "at_owner", "by_cost"),
    [
        (unknown, Reason.HASH, True, True),
        (owner_busy, Reason.PLACED, False, True),
        (at_home, Reason.HOME, True, False),
        (home_swamped, Reason.LEFT, False, True),
        (home_gone, Reason.MOVED, False, False),
    ],
)
def test_it_says_what_placement_then_does(situation: Situation, reason: Reason, at_owner: bool, by_cost: bool):
    p = placer()
    pool = situation(p)
    receipt = explain(p, pool, KEY, 0.0, 4400)
    decision = p.place(pool, Arrival(KEY, True, 4400), 0.0)
    assert decision is not None
    assert (receipt.reason, receipt.choice) == (decision.reason, decision.place[1])
    assert (receipt.reason, receipt.choice == OWNER, receipt.weighed) == (reason, at_owner, by_cost)
    assert receipt.runner_up != receipt.choice


@pytest.mark.parametrize("known", [False, True])
def test_a_lora_adapter_is_heeded(known: bool):
    loaded = next(r.id for r in REPLICAS if r.id != OWNER)
    replicas = tuple(replace(r, adapters=("tuned",) if r.id == loaded else ("other",)) for r in REPLICAS)
    pool = CompiledPool.of(replace(POOL.pool, replicas=replicas))
    p = placer()
    if known:
        place(p, pool=pool)
    receipt = explain(p, pool, KEY, 0.0, 4400, "tuned")
    decision = p.place(pool, Arrival(KEY, True, 4400, "tuned"), 0.0)
    assert decision is not None
    assert (receipt.choice, decision.place[1]) == (loaded, loaded)
    assert receipt.reason == decision.reason
    assert [offer.replica for offer in receipt.offers] == [loaded]


def test_every_term_of_every_replica_is_told_cheapest_first():
    p = placer()
    home_swamped(p)
    receipt = explain(p, POOL, KEY, 0.0, 4400)
    assert {offer.replica for offer in receipt.offers} == {r.id for r in REPLICAS}
    assert all(tuple(offer.terms) == TERMS for offer in receipt.offers)
    assert [offer.cost for offer in receipt.offers] == sorted(offer.cost for offer in receipt.offers)
    assert all(offer.cost == pytest.approx(sum(offer.terms.values()), abs=1) for offer in receipt.offers)
    home = next(offer for offer in receipt.offers if offer.replica == OWNER)
    assert (home.terms["waiting"], home.terms["leaving"], home.cached_tokens) == (51_000, 0, 1000)
    others = [offer for offer in receipt.offers if offer is not home]
    assert {offer.terms["leaving"] for offer in others} == {4000 + 0.5 * 1000}


def test_it_names_the_key_by_its_hash_the_owner_and_the_pin():
    p = placer()
    owner_busy(p)
    place(p, now=1.0)
    receipt = explain(p, POOL, KEY, 5.0)
    assert (receipt.session, receipt.hash_owner) == (KEY.digest("p", b"secret").hex(), OWNER)
    assert receipt.home != OWNER
    assert (receipt.pinned, receipt.idle_s) == (True, 4.0)


def test_without_members_nobody_can_serve_it():
    receipt = explain(placer(), CompiledPool.of(Pool("p", "model")), KEY, 0.0)
    assert (receipt.choice, receipt.hash_owner, receipt.offers) == (None, None, ())
    assert (receipt.reason, receipt.weighed) == ("fallback", False)


@pytest.mark.parametrize("situation", [unknown, owner_busy, at_home, home_swamped, home_gone])
def test_looking_changes_nothing(situation: Situation):
    """Two placers alike, one of them looked at: both go on alike."""

    def story(*, looked_at: bool) -> tuple[list[Decision | None], Receipt]:
        dice = Dice()
        p = placer(dice)
        pool = situation(p)
        dice.allowed = False
        for _ in range(5 * looked_at):
            explain(p, pool, KEY, 0.5, 4400)
        dice.allowed = True
        told = [p.place(pool, Arrival(KEY, True, 4400 + 400 * turn), 1.0 + turn) for turn in range(6)]
        return told, explain(p, pool, KEY, 9.0)

    assert story(looked_at=True) == story(looked_at=False)
