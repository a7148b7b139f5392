"""compose/drop-in.yaml in a real Docker engine: a stranger's Envoy with the fragments in it, and two pickers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from compose.engine import FILES, Project, docker, project
from compose.load import Load, calm
from e2e.client import ask, chat_body, request
from e2e.stack import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def drop_in(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The image's Envoy stands for Envoy's own image."""
    (port,), config = free_ports(1), calm(FILES / "drop-in", tmp_path_factory.mktemp("drop-in"))
    env = {"HOMING_IMAGE": image, "ENVOY_IMAGE": image, "HOMING_PORT": str(port), "HOMING_CONFIG": config}
    with project([FILES / "drop-in.yaml"], env) as running:
        yield running


@pytest.fixture
def load(drop_in: Project) -> Load:
    return Load([("127.0.0.1", int(drop_in.env["HOMING_PORT"]))], "demo-model")


async def test_a_session_sticks_through_the_published_port(load: Load) -> None:
    homes = await load.turns()
    assert set(homes.values()) == {"vllm-a", "vllm-b", "vllm-c"}
    assert await load.turns() == homes
    assert load.failed == []


async def test_killing_the_pickers_fails_no_request_and_moves_no_session(drop_in: Project, load: Load) -> None:
    homes = await load.turns()
    async with load.running():
        for service in ("picker", "standby"):
            await asyncio.to_thread(docker, "kill", drop_in.container(service))
            assert await load.turns() == homes
        await asyncio.to_thread(docker, "start", drop_in.container("picker"), drop_in.container("standby"))
        await asyncio.to_thread(drop_in.until_healthy, "picker", "standby")
        assert await load.turns() == homes


async def test_sessions_are_at_home_once_a_killed_envoy_is_back(drop_in: Project, load: Load) -> None:
    homes = await load.turns()
    docker("kill", drop_in.container("envoy"))
    ((host, port),) = load.places
    assert (await ask(port, request(chat_body(load.model)), 5.0, host=host)).status == 0
    docker("start", drop_in.container("envoy"))
    drop_in.until_healthy("envoy")
    assert await load.turns() == homes
    assert load.failed == []


async def test_of_a_killed_replica_only_its_own_sessions_move(drop_in: Project, load: Load) -> None:
    homes = await load.turns()
    async with load.running():
        await asyncio.to_thread(docker, "kill", drop_in.container("vllm-b"))
        heirs = await load.turns()
    assert {s for s in homes if heirs[s] != homes[s]} == {s for s, home in homes.items() if home == "vllm-b"}
    docker("start", drop_in.container("vllm-b"))
    drop_in.until_healthy("vllm-b")


async def test_a_rolling_update_of_the_pickers_fails_no_request(drop_in: Project, load: Load) -> None:
    homes = await load.turns()
    async with load.running():
        await asyncio.to_thread(drop_in.roll, "picker", "standby")
    assert await load.turns() == homes
