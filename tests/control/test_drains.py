import asyncio

import pytest

from homing.control.census import Left
from homing.control.drains import FORGOTTEN_AFTER_S, Drain, Drains
from homing.control.leadership.standing import Role
from homing.control.membership import Membership
from homing.core.config import parse
from homing.core.fleet import HealthChanged, State

A, B = ("p", "a"), ("p", "b")


class MemoryStore:
    def __init__(self):
        self.drains = {}
        self.broken = False
        self.changed_by_another = set()

    async def put_drain(self, drain):
        if self.broken:
            raise OSError("disk full")
        self.drains[drain.place] = drain

    async def end_drain(self, before, ended):
        if self.broken:
            raise OSError("disk full")
        if before.place in self.changed_by_another:
            return False
        self.drains[ended.place] = ended
        return True

    async def remove_drain(self, place):
        self.drains.pop(place, None)


class Pickers:
    """Says what is left; asked again and again."""

    def __init__(self):
        self.left = {A: Left(3, 1, certain=True), B: Left(0, 0, certain=False)}
        self.asked = 0

    async def __call__(self):
        self.asked += 1
        return dict(self.left)


class Setup:
    def __init__(self):
        text = "pools:\n  p:\n    replicas: [{id: a, address: '10.0.0.1:80'}, {id: b, address: '10.0.0.2:80'}]\n"
        self.membership = Membership(parse(text, "homing.yaml"))
        self.membership.apply(HealthChanged(*A, True), HealthChanged(*B, True))
        self.pickers, self.store, self.now = Pickers(), MemoryStore(), 1000.0
        self.drains = Drains(self.membership, self.pickers, self.store, lambda: self.now, interval_s=0.01)

    def replica(self, place):
        return self.membership.view.fleet.pool(place[0]).replica(place[1])


@pytest.fixture
async def setup(background):
    made = Setup()
    background(made.drains.run())
    return made


async def test_a_draining_replica_stays_while_anything_is_left(setup, until):
    await setup.drains.drain(A, 60)
    assert setup.replica(A).state is State.DRAINING
    await until(lambda: setup.pickers.asked > 3)
    assert setup.drains.left[A] == Left(3, 1, certain=True)
    assert setup.replica(A) is not None


async def test_it_leaves_when_nothing_is_left(setup):
    await setup.drains.drain(A, 60)
    setup.pickers.left[A] = Left(0, 0, certain=True)
    drain = await setup.drains.wait(A, 5)
    assert (drain.ended_s, drain.why, drain.sessions) == (1000.0, "idle", 0)
    assert setup.replica(A) is None
    assert setup.store.drains[A] == drain


async def test_it_leaves_at_its_deadline_whatever_is_left(setup, until):
    await setup.drains.drain(A, 60)
    await until(lambda: setup.pickers.asked > 1)
    setup.now = 1060.0
    drain = await setup.drains.wait(A, 5)
    assert (drain.why, drain.sessions) == ("deadline", 3)
    assert setup.replica(A) is None


async def test_doubt_lasts_until_the_deadline(setup, until):
    await setup.drains.drain(B, 60)
    await until(lambda: setup.pickers.asked > 3)
    assert setup.replica(B) is not None
    setup.pickers.left.clear()
    setup.now = 1061.0
    drain = await setup.drains.wait(B, 5)
    assert (drain.why, drain.sessions) == ("deadline", None)


async def test_a_second_word_changes_the_deadline_only(setup):
    await setup.drains.drain(A, 60)
    setup.now = 1010.0
    assert await setup.drains.drain(A, 5) == Drain(*A, since_s=1000.0, deadline_s=1015.0)


async def test_one_that_has_left_stays_away_until_it_is_taken_back(setup):
    await setup.drains.drain(A, 0)
    ended = await setup.drains.wait(A, 5)
    assert await setup.drains.drain(A, 60) == ended
    assert await setup.drains.undrain(A)
    assert setup.replica(A).state is State.JOINING
    assert setup.drains.all == ()
    assert setup.store.drains == {}
    assert not await setup.drains.undrain(A)


async def test_waiting_ends_with_its_time_and_with_the_drain(setup):
    await setup.drains.drain(A, 60)
    assert (await setup.drains.wait(A, 0.05)).ended_s is None
    waiting = asyncio.create_task(setup.drains.wait(A, 5))
    await asyncio.sleep(0)
    await setup.drains.undrain(A)
    assert await waiting is None


async def test_drains_of_an_earlier_process_go_on(setup, until):
    left = Drain(*B, since_s=1.0, deadline_s=2.0, ended_s=2.0, why="deadline", sessions=1)
    setup.drains.restore((Drain(*A, since_s=900.0, deadline_s=1060.0), left))
    assert setup.replica(A).state is State.DRAINING
    assert setup.replica(B) is None
    setup.now = 1060.0
    assert (await setup.drains.wait(A, 5)).why == "deadline"


async def test_a_drain_that_cannot_be_kept_does_not_begin_but_one_that_runs_ends(setup):
    await setup.drains.drain(A, 60)
    setup.store.broken = True
    with pytest.raises(OSError, match="disk full"):
        await setup.drains.drain(B, 60)
    assert setup.replica(B).state is State.READY
    setup.now = 1060.0
    assert (await setup.drains.wait(A, 5)).why == "deadline"


async def test_drains_of_replicas_that_nobody_reports_any_more_are_forgotten(setup, until):
    setup.drains.restore((Drain("p", "pod-1", 0.0, 10.0, ended_s=10.0, why="idle", sessions=0),))
    setup.now = 10.0 + FORGOTTEN_AFTER_S
    await asyncio.sleep(0.05)
    assert len(setup.drains.all) == 1
    setup.now += 1
    await setup.drains.drain(A, 0)
    await until(lambda: [drain.place for drain in setup.drains.all] == [A])


async def test_nobody_is_asked_while_nobody_drains(setup):
    await asyncio.sleep(0.05)
    assert setup.pickers.asked == 0


async def test_a_drain_that_another_control_service_took_back_is_not_ended(setup, until):
    setup.store.changed_by_another.add(A)
    await setup.drains.drain(A, 60)
    setup.pickers.left[A] = Left(0, 0, certain=True)
    asked = setup.pickers.asked
    await until(lambda: setup.pickers.asked > asked + 2)
    assert setup.drains.get(A).ended_s is None
    setup.store.changed_by_another.clear()
    assert (await setup.drains.wait(A, 5)).why == "idle"


async def test_who_follows_ends_no_drain_and_shows_what_is_left(setup, until):
    setup.membership.role = lambda: Role.FOLLOWING
    await setup.drains.drain(A, 0)
    await until(lambda: A in setup.drains.left)
    assert setup.drains.get(A).ended_s is None
    setup.membership.role = lambda: Role.LEADING
    assert (await setup.drains.wait(A, 5)).why == "deadline"
