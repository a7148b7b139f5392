"""The kill switch and a canary, through `homing up` and real Envoy, under load."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from e2e.client import chat_body, many, request
from e2e.stack import HOMING
from e2e.up import MESSAGES, Up, eventually

pytestmark = pytest.mark.e2e


async def policy(up: Up, *arguments: str) -> None:
    argv = (*HOMING, "policy", *arguments, "-c", str(up.file))
    await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, timeout=60)


async def known(up: Up) -> None:
    """Turns until the pickers know all sessions: Envoy alone may have placed the first."""
    async with asyncio.timeout(20):
        while {a.headers["x-homing-decision"] for a in await many(up.listen, MESSAGES, 20)} != {"home"}:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # the pickers are in other processes


async def test_bypass_takes_the_pickers_out_of_the_way_and_fails_no_request(up: Up) -> None:
    await known(up)
    async with up.under_load():
        assert "bypass is on" in await asyncio.to_thread(up.homing, "bypass", "on")
        await asyncio.sleep(1.5)
        started = up.stat("http.homing.ext_proc.streams_started")
        first, second = await up.turns(), await up.turns()
        assert first == second  # the hash goes on
        assert up.stat("http.homing.ext_proc.streams_started") == started
        assert "BYPASS IS ON" in await asyncio.to_thread(up.homing, "status")
        await policy(up, "rollback")
        await eventually(lambda: up.stat("http.homing.ext_proc.streams_started") > started, "the pickers to be asked")


async def test_a_replica_with_a_share_of_nothing_gets_no_new_session_and_keeps_its_own(up: Up) -> None:
    await known(up)
    before = await up.turns()
    assert "a" in before
    await policy(up, "set", "p", "--share", "a=0")
    await asyncio.sleep(1.5)
    fresh = await many(up.listen, [request(chat_body("m"))] * 40, 20)
    assert {x.status for x in fresh} == {200}
    assert "a" not in {x.headers["x-homing-replica"] for x in fresh}
    assert await up.turns() == before
    assert up.stat("cluster.p.membership_total") == 4
