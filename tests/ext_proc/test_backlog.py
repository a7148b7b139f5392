"""Batches of outcomes are heard some at a time."""

from __future__ import annotations

import asyncio

from outcome_log import batch

from homing.ext_proc.backlog import AT_ONCE, Backlog
from homing.ext_proc.outcomes import Outcome


def lines(count: int, first: int = 0) -> list[str]:
    return [f"p\tgpu\t{first + number}\t1000\t2000\t1\thome\tref" for number in range(count)]


async def test_a_large_batch_lets_others_have_their_turn_and_is_heard_in_order():
    heard: list[int] = []
    backlog = Backlog(lambda outcome: heard.append(outcome.status))
    backlog.take(batch(*lines(100)))
    assert heard == []
    await asyncio.sleep(0)
    assert heard == [], "to read a batch has a turn of its own"
    await asyncio.sleep(0)
    assert heard == list(range(AT_ONCE)), "others wait for no more than that"
    backlog.take(batch(*lines(3, first=100)))
    turns = 0
    while len(heard) < 103:
        await asyncio.sleep(0)
        turns += 1
    assert heard == list(range(103))
    assert turns >= 103 // AT_ONCE


async def test_the_more_wait_the_more_are_heard_at_once():
    heard: list[Outcome] = []
    Backlog(heard.append).take(batch(*lines(6_400)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(heard) == 200


async def test_at_the_end_all_are_heard():
    heard: list[Outcome] = []
    backlog = Backlog(heard.append)
    backlog.take(batch(*lines(50)))
    backlog.tell_all()
    await asyncio.sleep(0)
    assert len(heard) == 50


async def test_a_line_that_cannot_be_read_costs_no_other():
    heard: list[int] = []
    first, second = lines(2)
    backlog = Backlog(lambda outcome: heard.append(outcome.status))
    backlog.take(batch(first, "nonsense", second))
    backlog.tell_all()
    assert heard == [0, 1]
