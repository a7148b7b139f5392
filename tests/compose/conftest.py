"""The image, built once, and the demo of it, started once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from compose.engine import FILES, LABEL, TOP, Project, docker, project, reachable
from e2e.stack import free_ports

NETWORK = os.environ.get("HOMING_BUILD_NETWORK", "host")
"""Of the build: the host's also where containers reach nothing outside."""

CANARY = "index-of-a-test.invalid"
"""Of an index for packages, which must not be in the image."""


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
    """In a network of its own: another demo may run on this machine. Nobody leaves a home for its load, which on a busy
    machine would be a wait to speak of."""
    (port,), network = free_ports(1), f"homing-test-{os.getpid()}"
    directory = tmp_path_factory.mktemp("demo")
    text = (FILES / "demo/homing.yaml").read_text()
    assert text.count("network: homing-demo") == 1
    text = text.replace("network: homing-demo", f"network: {network}")
    (directory / "homing.yaml").write_text(f"{text}    placement: {{leave_tokens: 1000000}}\n")
    for readable in (directory / "homing.yaml", directory, directory.parent):
        readable.chmod(0o755)
    its = {"HOMING_PORT": str(port), "HOMING_NETWORK": network, "HOMING_CONFIG": str(directory)}
    with project([FILES / "demo.yaml"], {"HOMING_IMAGE": image, **its}) as running:
        yield running
