"""What holds for every service of every Compose file."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from compose.engine import FILES, Project

AS_ROOT = {"docker-api"}
"""Docker's socket belongs to root."""
ENDS_BY_ITSELF = {"fragments"}
SERVES = ("envoy", "picker", "standby", "control", "replica", "vllm", "qwen", "llama")
FILE_NAMES = ("demo.yaml", "drop-in.yaml", "vllm.yaml")


@pytest.fixture(scope="module", params=FILE_NAMES)
def services(request: pytest.FixtureRequest, engine: None) -> dict[str, dict[str, Any]]:
    """As Compose understands them: it refuses a file that is not valid."""
    resolved = Project([FILES / request.param], {}).compose("config")
    found: dict[str, dict[str, Any]] = yaml.safe_load(resolved)["services"]
    return found


def test_nobody_is_root_or_may_become_it(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["user"] == ("0:0" if name in AS_ROOT else "10001:10001"), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"cap_add", "privileged", "pid", "devices"} & service.keys(), name


def test_nobody_writes_to_his_root(services: dict[str, dict[str, Any]]) -> None:
    assert [name for name, service in services.items() if service["read_only"] is not True] == []


def test_everybody_is_watched_and_started_again(services: dict[str, dict[str, Any]]) -> None:
    for name in services.keys() - ENDS_BY_ITSELF:
        assert services[name]["restart"] == "unless-stopped", name
        assert "test" in services[name]["healthcheck"], name


def test_who_serves_gets_time_to_end_it(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name.startswith(SERVES):
            assert service["stop_grace_period"] in ("30s", "60s", "1m0s", "120s", "2m0s"), name


def test_only_the_proxy_has_dockers_socket(services: dict[str, dict[str, Any]]) -> None:
    with_it = {name for name, s in services.items() if any("/var/run/docker.sock" in v for v in s.get("volumes", ()))}
    assert with_it <= AS_ROOT


def test_ports_are_published_on_loopback_unless_told_otherwise(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert [port for port in published if not str(port).startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("file", FILE_NAMES)
def test_there_is_no_secret_that_everybody_knows(file: str) -> None:
    secrets = re.findall(r"\$\{HOMING_SECRET[^}]*\}", (FILES / file).read_text())
    assert secrets
    assert set(secrets) == {"${HOMING_SECRET:?make one with openssl rand -hex 32}"}


def test_every_image_is_a_version(services: dict[str, dict[str, Any]]) -> None:
    """But homing's own, which is built here."""
    images = {service["image"] for service in services.values()} - {"homing"}
    assert [image for image in images if "latest" in image or ":" not in image] == []
