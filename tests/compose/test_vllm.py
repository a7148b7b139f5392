"""compose/vllm.yaml in a real Docker engine, but for its engines, which need GPUs: simulated replicas stand in their
places, with their names, networks and labels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from compose.engine import FILES, Project, docker, project
from compose.load import Load, calm
from e2e.stack import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MODEL = "Qwen2.5-7B-Instruct"
GATEWAYS = ("a", "b")


def simulated(service: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """A simulated replica in the place of an engine; `like` is a service of homing's own image."""
    (served,) = (argument for argument in service["command"] if argument.startswith("--served-model-name="))
    kept = {key: service[key] for key in ("labels", "networks", "stop_grace_period", "restart", "read_only", "user")}
    health = {**like["healthcheck"], "test": ["CMD", "healthcheck", "127.0.0.1:8000/health"]}
    command = ["sim", "--listen", "0.0.0.0:8000", "--model", served.partition("=")[2]]
    events = [argument.replace("=", "\0", 1).split("\0") for argument in service["command"] if "kv-events" in argument]
    return {**kept, "image": like["image"], "command": [*command, *events[0]], "healthcheck": health}


@pytest.fixture(scope="module")
def vllm(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    ports = free_ports(2)
    config = calm(FILES / "vllm", tmp_path_factory.mktemp("config"))
    env = {"HOMING_IMAGE": image, "HOMING_CONFIG": config}
    env |= {"HOMING_HEALTH_EVERY": "5s"}  # of 15 containers
    env |= {f"GATEWAY_{g.upper()}": f"127.0.0.1:{port}" for g, port in zip(GATEWAYS, ports, strict=True)}
    resolved = yaml.safe_load(Project([FILES / "vllm.yaml"], env).compose("config"))
    services = resolved["services"]
    engines = [name for name, service in services.items() if "homing.pool" in service.get("labels", {})]
    assert sorted(engines) == ["llama-0", "llama-1", "qwen-0", "qwen-1"]
    resolved["services"] |= {name: simulated(services[name], services["picker-a"]) for name in engines}
    file = tmp_path_factory.mktemp("vllm") / "vllm.yaml"
    file.write_text(yaml.safe_dump(resolved))
    with project([file], env) as running:
        yield running


@pytest.fixture
def load(vllm: Project) -> Load:
    """By the gateways' own addresses, where a closed port is a refusal (Docker's published port takes everybody)."""
    return Load([(vllm.address(f"gateway-{g}", "clients"), 8080) for g in GATEWAYS], MODEL)


async def test_a_session_has_one_home_at_both_published_ports(vllm: Project) -> None:
    a, b = (("127.0.0.1", int(vllm.env[f"GATEWAY_{g.upper()}"].rpartition(":")[2])) for g in GATEWAYS)
    load = Load([a], MODEL)
    homes = await load.turns()
    assert set(homes.values()) == {"qwen-0", "qwen-1"}
    assert await Load([b], MODEL, load.sessions).turns() == homes


def test_both_gateways_have_one_name(vllm: Project) -> None:
    """For those who are in their network, where Docker's DNS gives both addresses."""
    resolve = "import socket; print(*sorted({a[4][0] for a in socket.getaddrinfo('homing', 8080)}))"
    found = vllm.run(
        *("docker", "run", "--rm", "--network", f"{vllm.name}_clients", "--entrypoint", "python3"),
        *(vllm.env["HOMING_IMAGE"], "-c", resolve),
    )
    assert len(found.split()) == len(GATEWAYS)


def test_nobody_but_the_gateways_reaches_an_engine(vllm: Project) -> None:
    asked = ("docker", "run", "--rm", "--network", f"{vllm.name}_clients", "--entrypoint", "healthcheck")
    engine = vllm.address("qwen-0", "engines")
    with pytest.raises(AssertionError, match=r"timed out|unreachable"):
        vllm.run(*asked, vllm.env["HOMING_IMAGE"], f"{engine}:8000/health")
    vllm.run(*asked, vllm.env["HOMING_IMAGE"], "homing:8080/v1/models")


async def test_killing_one_gateway_fails_no_request_of_who_tries_the_other(vllm: Project, load: Load) -> None:
    homes = await load.turns()
    parts = ("envoy-a", "picker-a", "standby-a", "control-a")
    docker("kill", *(vllm.container(part) for part in parts))
    assert await load.turns() == homes
    docker("start", *(vllm.container(part) for part in parts))
    vllm.until_healthy(*parts, "gateway-a")
    assert load.failed == []


async def test_killing_redis_fails_no_request_and_moves_no_session(vllm: Project, load: Load) -> None:
    homes = await load.turns()
    async with load.running():
        await asyncio.to_thread(docker, "kill", vllm.container("redis"))
        assert await load.turns() == homes
        assert await Load(load.places[::-1], MODEL, load.sessions).turns() == homes
        await asyncio.to_thread(docker, "start", vllm.container("redis"))
        await asyncio.to_thread(vllm.until_healthy, "redis")
        assert await load.turns() == homes


async def test_a_rolling_update_of_a_gateway_and_an_engine_fails_no_request(vllm: Project, load: Load) -> None:
    await load.turns()
    rolled = ("picker-a", "envoy-a", "qwen-1")
    before = {service: vllm.container(service) for service in rolled}
    async with load.running():
        await asyncio.to_thread(vllm.roll, *rolled)
    assert not {vllm.container(service) for service in rolled} & set(before.values())
    fresh = Load(load.places, MODEL)
    assert set((await fresh.turns()).values()) == {"qwen-0", "qwen-1"}  # it is back under its id
