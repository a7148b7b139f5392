import asyncio

from homing.control.latest import Latest


async def test_who_waits_gets_the_newest_and_not_what_came_between():
    latest = Latest("a")
    waiting = asyncio.create_task(latest.after(0))
    await asyncio.sleep(0)
    latest.set("b")
    latest.set("c")
    assert await waiting == (2, "c")


async def test_who_comes_late_does_not_wait():
    latest = Latest("a")
    latest.set("b")
    assert await latest.after(0) == (1, "b")


async def test_all_who_wait_are_woken():
    latest = Latest(0)
    waiting = [asyncio.create_task(latest.after(latest.serial)) for _ in range(3)]
    await asyncio.sleep(0)
    latest.set(1)
    assert await asyncio.gather(*waiting) == [(1, 1)] * 3
