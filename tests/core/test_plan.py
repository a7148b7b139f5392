"""What a change would move, pool by pool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from homing.core.fleet import Fleet, Pool, Replica, State
from homing.core.plan import Changes, UnplannableError, plan

EIGHT = tuple(Replica(f"gpu-{i}", f"10.0.0.{i}:8000") for i in range(8))
FLEET = Fleet((Pool("p", "m", replicas=EIGHT), Pool("q", "n", hash="maglev", replicas=EIGHT[:2])))
NEW = Replica("new", "10.0.1.1:8000")
SESSIONS = {("p", r.id): 10 * (i + 1) for i, r in enumerate(EIGHT)} | {("q", "gpu-0"): 1000}


def test_a_replica_more_moves_its_share_of_the_hash_and_no_session():
    (found,) = plan(FLEET, Changes(add=(("p", NEW),)), SESSIONS)
    assert (found.pool, found.sessions, found.sessions_moved, found.sessions_draining) == ("p", 360, 0, 0)
    assert found.hash_least == pytest.approx(1 / 9)
    assert 0.09 < found.hash_moved < 0.14
    shares = {share.replica: share for share in found.shares}
    assert shares["new"].before == 0.0
    assert shares["new"].after == found.hash_moved  # whatever moves goes there
    for side in ("before", "after"):
        assert sum(getattr(share, side) for share in found.shares) == pytest.approx(1.0)


def test_a_replica_less_moves_the_sessions_that_live_there():
    (found,) = plan(FLEET, Changes(remove=(("p", "gpu-3"),)), SESSIONS)
    assert (found.sessions, found.sessions_moved) == (360, 40)
    share = next(share for share in found.shares if share.replica == "gpu-3")
    assert (share.before, share.after) == (found.hash_moved, 0.0)


def test_a_drain_moves_nothing_at_once():
    (found,) = plan(FLEET, Changes(drain=(("p", "gpu-3"),)), SESSIONS)
    assert (found.hash_moved, found.hash_least) == (0.0, 0.0)
    assert (found.sessions, found.sessions_moved, found.sessions_draining) == (360, 0, 40)


def test_changes_are_made_together_and_each_pool_is_told_apart():
    changes = Changes(add=(("p", NEW), ("q", NEW)), remove=(("p", "gpu-0"),), drain=(("p", "gpu-1"),))
    first, second = plan(FLEET, changes, SESSIONS)
    assert (first.sessions_moved, first.sessions_draining) == (10, 20)
    assert (second.pool, second.sessions, second.sessions_moved) == ("q", 1000, 0)
    assert second.hash_least == pytest.approx(1 / 3)


def test_where_nobody_knows_sessions_only_shares_are_told():
    (found,) = plan(FLEET, Changes(remove=(("p", "gpu-3"),)), None)
    assert (found.sessions, found.sessions_moved, found.sessions_draining) == (None, None, None)


def test_what_changes_nothing_is_no_plan():
    draining = replace(EIGHT[0], state=State.DRAINING)
    fleet = Fleet((Pool("p", "m", replicas=(draining, *EIGHT[1:])),))
    assert plan(fleet, Changes(drain=(("p", "gpu-0"),)), None) == ()


def test_a_pool_that_loses_all_and_one_of_which_nobody_is_well():
    (found,) = plan(FLEET, Changes(remove=(("q", "gpu-0"), ("q", "gpu-1"))), SESSIONS)
    assert (found.hash_moved, found.hash_least, found.sessions_moved) == (1.0, 0.0, 1000)
    dead = Fleet((Pool("p", "m", replicas=tuple(replace(r, healthy=False) for r in EIGHT)),))
    (found,) = plan(dead, Changes(add=(("p", NEW),)), SESSIONS)
    assert (found.hash_moved, found.hash_least) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (Changes(remove=(("p", "x"),)), "there is no replica x in the pool p"),
        (Changes(drain=(("x", "gpu-0"),)), "there is no pool x"),
        (Changes(add=(("x", NEW),)), "there is no pool x"),
        (Changes(add=(("p", replace(NEW, id="gpu-1")),)), "the pool p has a replica gpu-1 or 10.0.1.1:8000 already"),
        (
            Changes(add=(("p", replace(NEW, address="10.0.0.1:8000")),)),
            "the pool p has a replica new or 10.0.0.1:8000 already",
        ),
        (Changes(add=(("p", NEW), ("p", NEW))), "the pool p has a replica new or 10.0.1.1:8000 already"),
    ],
)
def test_what_cannot_be_done_is_not_planned(changes: Changes, why: str):
    with pytest.raises(UnplannableError) as refused:
        plan(FLEET, changes, None)
    assert str(refused.value) == why
