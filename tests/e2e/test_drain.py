"""Membership without loss, through `homing up` and real Envoy: every change under load, not one request fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time

import pytest
from e2e.client import ask, chat_body, many, request
from e2e.stack import until
from e2e.up import MESSAGES, Up, eventually

pytestmark = pytest.mark.e2e

NEW = [request(chat_body("m"))] * 20


async def new_homes(up: Up) -> set[str]:
    """Who serves sessions that begin now."""
    return {a.headers["x-homing-replica"] for a in await many(up.listen, NEW, 20)}


async def homing(up: Up, *arguments: str) -> str:
    return await asyncio.to_thread(up.homing, *arguments)


async def test_a_drain_keeps_its_sessions_until_its_deadline_and_moves_each_once(up: Up) -> None:
    before = await up.turns()
    async with up.under_load():
        assert "a drains" in await homing(up, "drain", "a", "--deadline", "4s")
        await eventually(lambda: up.state("a") == "draining", "the drain to begin")
        await asyncio.sleep(0.5)
        assert await up.turns() == before
        assert "a" not in await new_homes(up)
        (drain,) = up.api_json("/api/drains")["drains"]
        assert drain["sessions"] >= before.count("a")  # a standby that was asked for a moment remembers them too
        assert up.moved == 0
        stream = asyncio.create_task(
            ask(up.listen, request(chat_body("m", stream=True, max_tokens=800), {"x-session-id": "s-long"}))
        )
        told = json.loads(await homing(up, "drain", "p/a", "--wait", "--deadline", "2s", "--json"))
        assert (told["state"], told["why"]) == ("left", "deadline")
        await eventually(lambda: up.stat("cluster.p.membership_total") == 3, "Envoy to have three replicas")
        await asyncio.sleep(0.5)
        after = await up.turns()
    answer = await stream
    assert (answer.status, answer.complete) == (200, True)
    assert "a" not in after
    assert [now for now, then in zip(after, before, strict=True) if then != "a"] == [r for r in before if r != "a"]
    assert 0 < up.moved <= before.count("a")
    assert "p/a has left" in up.homing("status")
    assert "serves again" in up.homing("undrain", "a")
    await eventually(lambda: up.state("a") == "ready", "a to be back")
    assert await up.turns() == after
    entries = up.api_json("/api/audit")["entries"]
    assert [(e["what"], e["target"]) for e in entries] == [("undrain", "p/a"), ("drain", "p/a"), ("drain", "p/a")]


async def test_a_drain_ends_early_when_its_sessions_are_idle(up: Up) -> None:
    up.write(["a", "b", "c", "d"], sessions={"ttl_s": 2})
    await eventually(lambda: "applied" in up.processes.log("up"), "the file to be read")
    await up.turns()
    began = time.monotonic()
    told = json.loads(await homing(up, "drain", "a", "--wait", "--deadline", "5m", "--json"))
    assert (told["why"], told["moved"]) == ("idle", 0)
    assert time.monotonic() - began < 60


async def test_a_drain_outlives_the_control_service(up: Up) -> None:
    before = await up.turns()
    up.homing("drain", "a", "--deadline", "1h")
    up.homing("drain", "b", "--deadline", "0s", "--wait")
    async with up.under_load():
        os.kill(up.child("control"), signal.SIGKILL)
        await eventually(lambda: "control is ready again" in up.processes.log("up"), "control to be back")
        await eventually(lambda: up.state("a") == "draining", "the drain to go on")
        assert up.state("b") == ""
        assert not {"a", "b"} & await new_homes(up)
        after = await up.turns()
    assert after.count("a") == before.count("a")
    assert "b" not in after


def died(up: Up) -> bool:
    """Kills it as often as it comes back, until that is noticed."""
    with contextlib.suppress(AssertionError, ProcessLookupError):
        os.kill(up.child("--id a"), signal.SIGKILL)
    return up.state("a") == ""


async def test_a_replica_that_dies_loses_its_sessions_once_and_gets_them_not_back(up: Up) -> None:
    before = await up.turns()
    async with up.under_load():
        await eventually(lambda: died(up), "the death to be noticed")
        await eventually(lambda: up.state("a") == "ready", "a to be back")
        await asyncio.sleep(0.5)
    after = await up.turns()
    assert [now for now, then in zip(after, before, strict=True) if then != "a"] == [r for r in before if r != "a"]
    assert up.moved <= before.count("a")


async def test_a_replica_that_restarts_between_two_probes_is_another_process(up: Up) -> None:
    def epoch() -> int:
        (pool,) = up.api_json("/api/fleet")["pools"]
        return next(r["epoch"] for r in pool["replicas"] if r["id"] == "a")

    await up.turns()
    await eventually(lambda: epoch() > 0, "the process to be known")
    before = epoch()
    async with up.under_load():
        os.kill(up.child("--id a"), signal.SIGKILL)
        await eventually(lambda: epoch() > before, "the other process to be noticed")
        await eventually(lambda: up.state("a") == "ready", "a to be back")
    assert "replica a of pool p is another process than before: it is cold" in up.processes.log("up")


async def test_all_replicas_restart_one_after_the_other(up: Up) -> None:
    await up.turns()
    expected = 0
    async with up.under_load():
        for replica in "abcd":
            told = json.loads(await homing(up, "drain", replica, "--wait", "--deadline", "1s", "--json"))
            expected += told["moved"]
            await eventually(lambda: up.stat("cluster.p.membership_total") == 3, "Envoy to have three replicas")
            os.kill(up.child(f"--id {replica}"), signal.SIGKILL)
            await homing(up, "undrain", replica)
            await eventually(lambda replica=replica: up.state(replica) == "ready", f"{replica} to be back")
            until(lambda: up.stat("cluster.p.membership_healthy") == 4, what="Envoy to have four replicas")
    assert expected >= len(MESSAGES) / 4
    assert 0 < up.moved <= expected
