"""What the control service does and what its absence does not do, through `homing up` and real Envoy."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from e2e.client import chat_body, many, request
from e2e.client import eventually as asked
from e2e.stack import answers
from e2e.up import Up, eventually

pytestmark = pytest.mark.e2e


async def test_traffic_goes_on_while_control_is_frozen_killed_and_back(up: Up) -> None:
    before = await up.turns()
    added = up.stat("listener_manager.listener_added")
    async with up.under_load():
        control = up.child("control")
        os.kill(control, signal.SIGSTOP)
        await asyncio.sleep(1)
        os.kill(control, signal.SIGKILL)
        await eventually(lambda: "control is ready again" in up.processes.log("up"), "control to be back")
        await eventually(lambda: answers(f"http://127.0.0.1:{up.api}/readyz"), "control to be ready")
        await eventually(lambda: bool(up.api_json("/api/xds")["streams"]), "Envoy to be connected again")
    assert await up.turns() == before
    # what Envoy had was not sent to it again
    assert up.stat("listener_manager.listener_added") == added
    assert up.stat("listener_manager.listener_modified") == 0


async def test_a_replica_that_leaves_and_comes_back_costs_no_request_and_moves_only_its_own_sessions(up: Up) -> None:
    before = await up.turns()
    async with up.under_load():
        up.write(["a", "b", "c"])
        await eventually(lambda: up.stat("cluster.p.membership_total") == 3, "Envoy to have three replicas")
        await asyncio.sleep(1)
        without = await up.turns()
        up.write(["a", "b", "c", "d"])
        await eventually(lambda: up.stat("cluster.p.membership_healthy") == 4, "Envoy to have four replicas")
        await asyncio.sleep(1)
    assert "d" in before
    assert "d" not in without
    assert [now for now, then in zip(without, before, strict=True) if then != "d"] == [r for r in before if r != "d"]
    # a scale-up moves no active session
    assert await up.turns() == without


async def test_a_replica_that_joins_gets_new_sessions_and_none_that_live_elsewhere(up: Up) -> None:
    up.write(["a", "b", "c"])
    await eventually(lambda: up.stat("cluster.p.membership_total") == 3, "Envoy to have three replicas")
    await asyncio.sleep(1)
    before = await up.turns()
    assert "d" not in before

    async def joined() -> bool:
        fresh = await many(up.listen, [request(chat_body("m"))] * 20, 20)
        assert {a.status for a in fresh} == {200}
        return "d" in {a.headers["x-homing-replica"] for a in fresh}

    async with up.under_load():
        up.write(["a", "b", "c", "d"])
        await eventually(lambda: up.stat("cluster.p.membership_healthy") == 4, "Envoy to have four replicas")
        await asked(joined, "new sessions at the new replica")
    assert await up.turns() == before


async def test_a_bad_file_changes_nothing(up: Up) -> None:
    before = await up.turns()
    version = up.api_json("/api/fleet")["version"]
    up.file.write_text("pools: {}\n")
    await eventually(lambda: "homing.yaml" in up.processes.log("up"), "the problem to be said")
    assert await up.turns() == before
    assert up.api_json("/api/fleet")["version"] == version
    assert not up.failed
