"""compose/Dockerfile: what the image is, and what must not be in it."""

from __future__ import annotations

import json

import pytest
from compose.engine import CANARY, docker

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BASE = "python:3.12-slim-bookworm"
BASE_BYTES = 130_000_000
"""Of that image as its publisher has it. Where it is a stand-in of Debian's packages, it is larger."""
LIMIT_BYTES = 400_000_000


def test_it_is_small(image: str) -> None:
    size, base = (int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in (image, BASE))
    assert size - base + BASE_BYTES < LIMIT_BYTES


def test_it_runs_as_nobody_in_particular_and_writes_nothing(image: str) -> None:
    run = ("run", "--rm", "--read-only", "--network", "none", "--cap-drop", "ALL")
    assert docker(*run, image, "--version").startswith("homing, version ")
    assert docker(*run, "--entrypoint", "id", image, "-u") == "10001"
    assert "/Clean/RELEASE/" in docker(*run, "--entrypoint", "envoy", image, "--version")


def test_the_index_that_it_was_built_with_is_not_in_it(image: str) -> None:
    """The fixture gave it as a build argument."""
    history = docker("history", "--no-trunc", "--format", "{{json .}}", image)
    assert CANARY not in history
    assert CANARY not in json.dumps(docker("image", "inspect", image))
    search = f"grep -rIl {CANARY} /opt /etc /usr/local /var/lib/homing /tmp 2>/dev/null || true"
    assert docker("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", search) == ""


def test_it_has_what_discovery_pins_and_events_need(image: str) -> None:
    extras = "import cryptography, dns, docker, lightkube, redis, zmq"
    docker("run", "--rm", "--network", "none", "--entrypoint", "python3", image, "-c", extras)
