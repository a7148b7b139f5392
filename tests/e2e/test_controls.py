"""Two control services that act as one: real Redis, real Envoy, and every way for one of them to be gone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.client import chat_body, many, request
from e2e.controls import LISTED, NAMES, Controls, two_controls
from e2e.up import eventually

pytestmark = pytest.mark.e2e

TAKEN_OVER_S = 6.0


@pytest.fixture(scope="module")
def controls(short_directory: Path) -> Iterator[Controls]:
    with two_controls(short_directory / "controls") as controls:
        yield controls


@pytest.fixture
async def both(controls: Controls) -> Controls:
    """Both there, one leading, all of the file's replicas serving and told everywhere."""
    for name in NAMES:
        if name not in controls.processes.running:
            controls.start_control(name)
    await eventually(lambda: all(controls.ready(name) for name in NAMES), "both to be ready")
    await eventually(lambda: controls.leader() != "", "a leader")
    await eventually(lambda: same_everywhere(controls), "one fleet everywhere")
    controls.failed.clear()
    return controls


def same_everywhere(controls: Controls) -> bool:
    states = {name: controls.states(name) for name in NAMES}
    return all(s == dict.fromkeys(LISTED, ("ready", True)) for s in states.values()) and one_version(controls)


def healthy(controls: Controls, name: str) -> int:
    return sum(healthy for _, healthy in controls.states(name).values())


def one_version(controls: Controls) -> bool:
    return controls.told("one") == controls.told("two") != ""


async def at_home(controls: Controls, before: list[str]) -> None:
    """Every session is where it was. A turn that Envoy placed alone, since the picker was late, is no move."""
    for _ in range(3):
        after = await controls.turns()
        if after == before:
            return
    assert after == before


def taken_over(controls: Controls, by: str) -> bool:
    return controls.role(by) == "leading"


async def test_a_write_through_either_is_seen_by_both(both: Controls) -> None:
    leader = both.leader()
    follower = both.other(leader)
    await both.turns()  # whom the sessions of some keep there
    assert "a drains" in await asyncio.to_thread(both.homing, follower, "drain", "a", "--deadline", "1h")
    for name in NAMES:
        await eventually(lambda name=name: both.states(name)["a"] == ("draining", True), "the drain to be seen")
    assert "serves again" in await asyncio.to_thread(both.homing, leader, "undrain", "a")
    await eventually(lambda: same_everywhere(both), "the drain to be taken back everywhere")
    registered = {"address": f"127.0.0.1:{both.replicas['d']}", "ttl_s": 60}
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.put(both.url(follower, "/api/pools/p/replicas/d"), json=registered)).status_code == 200
        for name in NAMES:
            await eventually(lambda name=name: both.states(name).get("d") == ("ready", True), "it to join")
        await eventually(lambda: both.stat("cluster.p.membership_healthy") == 4, "Envoy to have four replicas")
        await client.delete(both.url(leader, "/api/pools/p/replicas/d"))
    await eventually(lambda: same_everywhere(both), "it to have left")
    audits = [[(e["what"], e["target"]) for e in both.api(name, "/api/audit")["entries"]] for name in NAMES]
    done = [("deregister", "p/d"), ("register", "p/d"), ("undrain", "p/a"), ("drain", "p/a")]
    assert audits[0][:4] == audits[1][:4] == done


@pytest.mark.parametrize("how", ["killed", "frozen", "ended"])
async def test_when_the_leader_is_gone_the_other_takes_over_and_nothing_changes(both: Controls, how: str) -> None:
    leader = both.leader()
    follower = both.other(leader)
    before, version = await both.turns(), both.told(follower)
    changes = both.stat("cluster.p.membership_change")
    async with both.under_load():
        if how == "killed":
            both.processes.kill(leader)
        else:
            both.processes.signal(leader, signal.SIGSTOP if how == "frozen" else signal.SIGTERM)
        began = time.monotonic()
        await eventually(lambda: taken_over(both, follower), "the other to lead")
        assert time.monotonic() - began < TAKEN_OVER_S
        await asyncio.sleep(1)
        assert both.told(follower) == version
        if how == "ended":
            both.processes.running.pop(leader).wait(10)
        if how == "frozen":
            await asyncio.sleep(2)
            both.processes.signal(leader, signal.SIGCONT)
            await eventually(lambda: both.role(leader) == "following", "the frozen one to follow")
            assert one_version(both)
        else:
            both.start_control(leader)
            await eventually(lambda: both.ready(leader), "it to be back")
            assert (both.role(leader), both.told(leader)) == ("following", version)
        await eventually(lambda: both.connected_to() != [], "Envoy to be connected")
    await at_home(both, before)
    assert both.stat("cluster.p.membership_change") == changes


async def test_a_replica_that_dies_is_noticed_by_whoever_leads_and_told_by_both(both: Controls) -> None:
    both.processes.kill("replica-b")
    for name in NAMES:
        await eventually(lambda name=name: both.states(name)["b"] == ("ready", False), "the death to be told")
    assert one_version(both)
    both.start_replica("b")
    await eventually(lambda: same_everywhere(both), "it to be back")


async def test_without_redis_both_go_on_and_take_no_more_than_half_of_a_pool_away(both: Controls) -> None:
    leader = both.leader()
    await both.turns()
    both.homing(leader, "drain", "c", "--deadline", "1h")
    await eventually(lambda: both.states(both.other(leader))["c"][0] == "draining", "the drain to be known")
    async with both.under_load():
        both.redis.kill()
        await eventually(lambda: {both.role(name) for name in NAMES} == {"alone"}, "both to be alone")
    for name in NAMES:
        assert both.api(name, "/api/control")["trouble"] != ""
        assert {r: s for r, (s, _) in both.states(name).items()} == {"a": "ready", "b": "ready", "c": "draining"}
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(both.url(name, "/api/pools/p/replicas/a/drain"))
        assert (answer.status_code, "cannot be had" in answer.json()["detail"]) == (503, True)
        assert "HELD HERE ALONE" in await asyncio.to_thread(both.homing, name, "bypass", "on")
    await eventually(lambda: not both.asks_pickers(), "Envoy to pass the pickers by")
    before = await both.turns()
    assert await both.turns() == before  # the hash goes on
    for name in ("a", "b"):
        both.processes.kill(f"replica-{name}")
    for name in NAMES:
        await eventually(lambda name=name: healthy(both, name) == 2, "one of them to be taken away")
    await asyncio.sleep(3)
    assert [healthy(both, name) for name in NAMES] == [2, 2]
    for name in ("a", "b"):
        both.start_replica(name)
    both.redis.start()  # and it has forgotten everything
    await eventually(lambda: sorted(map(both.role, NAMES)) == ["following", "leading"], "one of them to lead")
    for name in NAMES:
        await eventually(lambda name=name: both.states(name)["c"] == ("draining", True), "the drain to be there still")
    await eventually(lambda: {both.bypass(name) for name in NAMES} == {(True, True)}, "the bypass to be kept")
    assert not both.asks_pickers()
    both.homing("two", "bypass", "off")
    await eventually(lambda: {both.bypass(name) for name in NAMES} == {(False, True)}, "it to be taken back by both")
    await eventually(both.asks_pickers, "Envoy to ask again")
    both.homing("one", "undrain", "c")
    await eventually(lambda: same_everywhere(both), "all to be as before")
    await eventually(lambda: both.stat("cluster.p.membership_healthy") == len(LISTED), "Envoy to have all")


async def test_a_control_service_that_starts_without_redis_begins_with_what_it_told_last(both: Controls) -> None:
    both.homing("one", "drain", "a", "--deadline", "0s", "--wait")
    for name in NAMES:
        await eventually(lambda name=name: "a" not in both.states(name), "the drained one to be gone")
    both.redis.kill()
    both.processes.kill("two")
    both.start_control("two")
    await eventually(lambda: both.ready("two"), "it to be ready")
    assert both.role("two") == "alone"
    assert set(both.states("two")) == {"b", "c"}
    both.redis.start()
    await eventually(lambda: {"leading", "following"} == {both.role(name) for name in NAMES}, "one to lead")
    both.homing("one", "undrain", "a")
    await eventually(lambda: same_everywhere(both), "all to be as before")


async def test_a_replica_that_fails_requests_and_answers_probes_gets_no_new_sessions(both: Controls) -> None:
    for _ in range(10):  # it has served well, and its sessions leave with the first request that fails
        await both.turns()
    async with httpx.AsyncClient(trust_env=False) as client, both.under_load():
        await client.put(f"http://127.0.0.1:{both.faults}/fault", json={"kind": "unavailable"})
        for name in NAMES:
            await eventually(lambda name=name: both.failing(name) == ["b"], "it to be found out")
        fresh = await many(both.listen, [request(chat_body("m"))] * 20, 10)
        assert {(a.status, a.headers["x-homing-replica"] == "b") for a in fresh} == {(200, False)}
    assert "healthy, but fails requests" in await asyncio.to_thread(both.homing, "one", "status")
    assert both.states("one")["b"] == ("ready", True)
