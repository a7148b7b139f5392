"""compose/demo.yaml in a real Docker engine: sessions stay at home whatever is killed, replaced or added."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable

import pytest
from compose.engine import Project, docker, until
from compose.load import Load, names
from e2e.client import ask, chat_body, request

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MODEL = "demo-model"
WITHOUT_FAILURE = ("picker", "control", "docker-api")
"""Killed, they fail nobody's request. (The standby, and then the picker too, in a test of their own.)"""


@pytest.fixture
def load(demo: Project) -> Load:
    return Load([("127.0.0.1", port(demo))], MODEL)


def port(demo: Project) -> int:
    return int(demo.env["HOMING_PORT"])


def fleet(demo: Project) -> dict[str, tuple[str, bool]]:
    """Each replica's state and health, as `homing status` has them."""
    status = json.loads(demo.inside("control", "homing", "status", "--json"))
    return {r["id"]: (r["state"], r["healthy"]) for r in status["fleet"]["pools"][0]["replicas"]}


async def until_fleet(demo: Project, holds: Callable[[dict[str, tuple[str, bool]]], bool]) -> None:
    await asyncio.to_thread(until, lambda: holds(fleet(demo)), "the fleet")


async def test_a_session_sticks_through_the_published_port(demo: Project, load: Load) -> None:
    homes = await load.turns()
    assert set(homes.values()) == set(fleet(demo))
    assert await load.turns() == homes
    assert load.failed == []


async def test_a_new_session_gets_an_id_and_comes_home_with_it(demo: Project) -> None:
    first = await ask(port(demo), request(chat_body(MODEL)))
    again = await ask(port(demo), request(chat_body(MODEL), {"x-session-id": first.headers["x-session-id"]}))
    assert (first.headers["x-homing-decision"], again.headers["x-homing-decision"]) == ("new", "home")
    assert again.headers["x-homing-replica"] == first.headers["x-homing-replica"]


@pytest.mark.parametrize("service", WITHOUT_FAILURE)
async def test_killing_it_fails_no_request_and_moves_no_session(demo: Project, load: Load, service: str) -> None:
    homes = await load.turns()
    async with load.running():
        await asyncio.to_thread(docker, "kill", demo.container(service))
        assert await load.turns() == homes
        await asyncio.to_thread(docker, "start", demo.container(service))
        await asyncio.to_thread(demo.until_healthy, service)
        assert await load.turns() == homes


async def test_with_both_pickers_killed_envoy_keeps_sessions_at_home(demo: Project, load: Load) -> None:
    homes = await load.turns()
    async with load.running():
        for service in ("standby", "picker"):
            await asyncio.to_thread(docker, "kill", demo.container(service))
            assert await load.turns() == homes
        await asyncio.to_thread(docker, "start", demo.container("picker"), demo.container("standby"))
        await asyncio.to_thread(demo.until_healthy, "picker", "standby")
    assert await load.turns() == homes


async def test_of_a_killed_replica_only_its_own_sessions_move(demo: Project, load: Load) -> None:
    homes = await load.turns()
    victim = demo.containers("replica")[0]
    name = docker("inspect", "--format", "{{.Name}}", victim).removeprefix("/")
    async with load.running():
        await asyncio.to_thread(docker, "kill", victim)
        heirs = await load.turns()
    assert name not in heirs.values()
    assert {s for s in homes if heirs[s] != homes[s]} == {s for s, home in homes.items() if home == name}
    await asyncio.to_thread(docker, "start", victim)
    await until_fleet(demo, lambda found: found.get(name) == ("ready", True))


async def test_sessions_are_at_home_once_a_killed_envoy_is_back(demo: Project, load: Load) -> None:
    homes = await load.turns()
    docker("kill", demo.container("envoy"))
    assert (await ask(port(demo), request(chat_body(MODEL)), 5.0)).status == 0
    docker("start", demo.container("envoy"))
    demo.until_healthy("envoy")
    assert await load.turns() == homes
    assert load.failed == []


@pytest.mark.parametrize("service", ["envoy", "picker"])
async def test_what_dies_by_itself_is_started_again(demo: Project, load: Load, service: str) -> None:
    homes = await load.turns()
    before = demo.process(service)
    os.kill(before, signal.SIGKILL)
    until(lambda: demo.process(service) not in (0, before), "a new process")
    demo.until_healthy(service)
    assert await load.turns() == homes


async def test_an_envoy_that_is_stopped_ends_its_streams_first(demo: Project) -> None:
    streaming = asyncio.create_task(ask(port(demo), request(chat_body(MODEL, stream=True, max_tokens=600))))
    await asyncio.sleep(0.5)
    assert not streaming.done()
    await asyncio.to_thread(demo.compose, "stop", "envoy")
    stream = await streaming
    assert (stream.status, stream.complete) == (200, True)
    assert stream.body.endswith(b"data: [DONE]\n\n")
    demo.compose("start", "envoy")
    demo.until_healthy("envoy", "gateway")


async def test_scaling_up_moves_no_session_and_scaling_down_only_those_of_who_goes(demo: Project, load: Load) -> None:
    homes = await load.turns()
    async with load.running():
        await asyncio.to_thread(demo.compose, "up", "-d", "--no-build", "--no-recreate", "--scale", "replica=5")
        await until_fleet(demo, lambda found: len(found) == 5 and set(found.values()) == {("ready", True)})
        assert await load.turns() == homes
        fresh, served = [], set[str]()
        while len(served) < 5:
            assert len(fresh) < 20, f"20 times 64 new sessions, and only {served} have any"
            fresh.append(Load(load.places, MODEL, names(64)))  # who joins begins slowly
            served |= set((await fresh[-1].turns()).values())
        await asyncio.to_thread(demo.compose, "up", "-d", "--no-build", "--no-recreate", "--scale", "replica=3")
        await until_fleet(demo, lambda found: len(found) == 3)
        assert await load.turns() == homes
    assert [failed for each in fresh for failed in each.failed] == []


async def test_a_rolling_update_fails_no_request(demo: Project, load: Load) -> None:
    before = {s: demo.containers(s) for s in ("picker", "control", "replica")}
    async with load.running():
        await asyncio.to_thread(demo.roll, *before)
    for service, containers in before.items():
        now = demo.containers(service)
        assert len(now) == len(containers)
        assert not set(now) & set(containers)
    assert set((await load.turns()).values()) <= set(fleet(demo))


async def test_a_killed_network_is_made_anew_with_all_that_is_in_it(demo: Project, load: Load) -> None:
    """As docs/containers.md has it, since Docker does not start the others after it."""
    homes = await load.turns()
    docker("kill", demo.container("gateway"))
    assert (await ask(port(demo), request(chat_body(MODEL)), 5.0)).status == 0
    services = ("gateway", "envoy", "control", "picker", "standby")
    demo.compose("up", "-d", "--no-build", "--force-recreate", *services, timeout_s=240.0)
    demo.until_healthy(*services)
    assert await load.turns() == homes
    assert load.failed == []


def test_control_is_reached_from_the_gateway_only(demo: Project) -> None:
    (replica, *_) = demo.containers("replica")
    refused = "import socket; print(socket.socket().connect_ex(('gateway', 8600)) != 0)"
    assert docker("exec", replica, "python3", "-c", refused) == "True"
    demo.inside("gateway", "healthcheck", "127.0.0.1:8600/readyz")


def test_of_docker_control_may_ask_who_runs_and_nothing_else(demo: Project) -> None:
    asking = """
from docker import APIClient
from docker.errors import APIError
engine = APIClient("unix:///run/docker-api/docker.sock", version="auto")
print(len(engine.containers()) > 0)
for refused in (engine.images, engine.info, lambda: engine.stop(engine.containers()[0]["Id"], timeout=0),
                lambda: engine.create_container("x"), lambda: engine.inspect_container(engine.containers()[0]["Id"])):
    try:
        refused()
    except APIError as error:
        print(error.response.status_code)
"""
    assert demo.inside("control", "python3", "-c", asking).split() == ["True", *["403"] * 5]
