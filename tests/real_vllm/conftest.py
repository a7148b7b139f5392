"""Three real engines and a gateway in front of them, started once for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from published_templates import published
from real_vllm.engines import Engine, engines
from real_vllm.gateway import Gateway, gateway

REPLICAS = ("a", "b", "c")
TEMPLATE = "deepseek_r1_distill"
"""Of several system texts it shows the last one only, without a word."""


@pytest.fixture(scope="session")
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="homing-vllm-", dir="/tmp"))  # short: Unix sockets lie in it
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def template() -> str:
    return published("trl", TEMPLATE)


@pytest.fixture(scope="session")
def fleet(directory: Path, template: str) -> Iterator[dict[str, Engine]]:
    python = Path(os.environ.get("VLLM_PYTHON", "")).absolute()
    assert python.is_file(), "VLLM_PYTHON has to be the Python of an environment with vLLM: `make test-vllm`"
    with engines(python, directory, REPLICAS, template) as started:
        yield started


@pytest.fixture(scope="session")
def homing(directory: Path, fleet: dict[str, Engine]) -> Iterator[Gateway]:
    with gateway(directory, fleet) as started:
        yield started
