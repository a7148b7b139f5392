import asyncio

import pytest

from homing.control.feed import FORGOTTEN_AFTER_S, Feed
from homing.core.fleet import Fleet, Pool, Replica, decode

ONE = Fleet((Pool("p", "p", replicas=(Replica("a", "10.0.0.1:80"),)),))
TWO = Fleet((Pool("p", "p", replicas=(Replica("b", "10.0.0.2:80"),)),))


class Clock:
    def __init__(self):
        self.s = 1000.0

    def __call__(self):
        return self.s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def feed(clock):
    return Feed(clock)


async def test_who_has_nothing_gets_the_newest_at_once(feed):
    feed.publish(ONE)
    edition = await feed.poll("p1", "", 5)
    assert (edition.version, decode(edition.body)) == (ONE.version, ONE)


async def test_who_has_the_newest_waits_for_the_next(feed):
    feed.publish(ONE)
    polling = asyncio.create_task(feed.poll("p1", ONE.version, 5))
    await asyncio.sleep(0.02)
    assert not polling.done()
    feed.publish(ONE)
    await asyncio.sleep(0.02)
    assert not polling.done()
    feed.publish(TWO)
    assert (await polling).version == TWO.version


async def test_before_the_first_fleet_pollers_wait(feed):
    polling = asyncio.create_task(feed.poll("p1", "of an earlier life", 5))
    await asyncio.sleep(0.02)
    assert not polling.done()
    feed.publish(ONE)
    assert (await polling).version == ONE.version


async def test_nothing_new_in_time_is_none(feed):
    feed.publish(ONE)
    assert await feed.poll("p1", ONE.version, 0.01) is None


async def test_closing_answers_every_poll(feed):
    feed.publish(ONE)
    polling = asyncio.create_task(feed.poll("p1", ONE.version, 60))
    await asyncio.sleep(0.02)
    feed.close()
    assert await asyncio.wait_for(polling, 1) is None


async def test_the_next_poll_is_the_acknowledgement(feed):
    feed.publish(ONE)
    await feed.poll("p1", "", 5)
    waiting = asyncio.create_task(feed.wait_applied(ONE.version, 5))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await feed.poll("p1", ONE.version, 0)
    assert await waiting


async def test_nobody_there_is_nobody_to_wait_for(feed):
    feed.publish(ONE)
    assert await feed.wait_applied(ONE.version, 5)


async def test_all_who_are_there_are_waited_for(feed):
    feed.publish(ONE)
    await feed.poll("p1", ONE.version, 0)
    await feed.poll("p2", "", 0)
    assert not await feed.wait_applied(ONE.version, 0.02)


async def test_a_picker_that_went_silent_is_not_waited_for(feed, clock):
    feed.publish(ONE)
    await feed.poll("p1", "", 0)
    clock.s += 2.1
    assert await feed.wait_applied(ONE.version, 5)


async def test_a_late_picker_is_waited_for_once_until_it_has_caught_up(feed, caplog):
    feed.publish(ONE)
    await feed.poll("p1", "", 0)
    assert not await feed.wait_applied(ONE.version, 0.02)
    assert await feed.wait_applied(ONE.version, 5)
    assert (feed.late, feed.pickers["p1"].late) == (1, True)
    await feed.poll("p1", ONE.version, 0)
    feed.publish(TWO)
    assert not await feed.wait_applied(TWO.version, 0.02)


async def test_pickers_are_forgotten_in_time_and_bounded_in_number(feed, clock):
    for i in range(300):
        await feed.poll(f"p{i}", "", 0)
    assert len(feed.pickers) == 256
    clock.s += FORGOTTEN_AFTER_S + 1
    assert feed.pickers == {}
