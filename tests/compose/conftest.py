"""The image, built once, and the demo of it, started once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose.engine import CANARY, FILES, LABEL, TOP, Project, docker, project, reachable
from compose.load import calm
from e2e.stack import free_ports

NETWORK = os.environ.get("HOMING_BUILD_NETWORK", "host")
"""Of the build: the host's also where containers reach nothing outside."""


@pytest.fixture(scope="session")
def engine() -> None:
    """In CI, .ci/docker has started one."""
    if not reachable() or shutil.which("docker-compose") is None:
        pytest.skip("no Docker engine, or no docker-compose: .ci/docker installs and starts them (as root, on Debian)")


@pytest.fixture(scope="session")
def image(engine: None) -> Iterator[str]:
    """Its name. What the build kept for the next one stays."""
    name = f"homing-test:{os.getpid()}"
    docker(
        *("build", "--quiet", "--network", NETWORK, "--label", f"{LABEL}=image", "--tag", name),
        *("--build-arg", f"PIP_TRUSTED_HOST={CANARY}"),
        *("--file", str(FILES / "Dockerfile"), str(TOP)),
        timeout_s=400.0,
    )
    yield name
    docker("image", "rm", "--force", name)


@pytest.fixture(scope="module")
def demo(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """In a network of its own: another demo may run on this machine."""
    (port,), network = free_ports(1), f"homing-test-{os.getpid()}"
    config = calm(FILES / "demo", tmp_path_factory.mktemp("demo"))
    file = Path(config) / "homing.yaml"
    text = file.read_text()
    assert text.count("network: homing-demo") == 1
    file.write_text(text.replace("network: homing-demo", f"network: {network}"))
    env = {"HOMING_IMAGE": image, "HOMING_PORT": str(port), "HOMING_NETWORK": network, "HOMING_CONFIG": config}
    with project([FILES / "demo.yaml"], env) as running:
        yield running
