"""Stacks that tests share where they do not break them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.stack import HOMING, Processes, SimulatedPool, StaticStack, free_ports, static_stack, until
from e2e.up import Up

TWO_POOLS = (
    SimulatedPool("pool-a", "model-a", 3, aliases=("chat",)),
    SimulatedPool("pool-b", "model-b", 2, hash="maglev"),
)
ONE_POOL = (SimulatedPool("only", "only-model", 2),)


@pytest.fixture(scope="module")
def short_directory() -> Iterator[Path]:
    """pytest's own directories are too long for Unix sockets (107 bytes)."""
    directory = Path(tempfile.mkdtemp(prefix="homing-e2e-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def two_pools(short_directory: Path) -> Iterator[StaticStack]:
    with static_stack(short_directory / "two", TWO_POOLS) as stack:
        yield stack


@pytest.fixture(scope="module")
def one_pool(short_directory: Path) -> Iterator[StaticStack]:
    with static_stack(short_directory / "one", ONE_POOL) as stack:
        yield stack


@pytest.fixture
def up(short_directory: Path) -> Iterator[Up]:
    directory = Path(tempfile.mkdtemp(dir=short_directory))
    listen, admin, xds, api, *replicas = free_ports(8)
    running = Up(Processes(directory), listen, admin, xds, api, dict(zip("abcd", replicas, strict=True)))
    running.write(["a", "b", "c", "d"])
    running.processes.start("up", (*HOMING, "up", "--demo", "-c", str(running.file)))
    try:
        until(lambda: "Ctrl-C ends it" in running.processes.log("up"), what="homing up")
        yield running
    finally:
        running.processes.stop_all()
