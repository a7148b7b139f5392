"""Pickers, fresh for each test. Asynchronous tests run on the loop that pickers run on; transports in both kinds."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop
from picker_serving import Serving
from picking import FILE, FLEET, Picking

from homing.core.chains import Chains
from homing.core.config import parse
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.session import Homes
from homing.ext_proc.picker import Picker
from homing.ext_proc.server_grpc import GrpcTransport
from homing.ext_proc.server_h2 import H2Transport


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop's transports are no asyncio.Transport, for one."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """pytest's own directories are too long for Unix sockets (107 bytes)."""
    directory = Path(tempfile.mkdtemp(prefix="homing-grpc-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=[GrpcTransport, H2Transport], ids=["grpc", "h2"])
async def serving(short_directory: Path, request: pytest.FixtureRequest) -> AsyncIterator[Serving]:
    made = Serving(short_directory / "picker.sock", request.param)
    await made.transport.start()
    yield made
    await made.channel.close()
    await made.transport.stop(0)


@pytest.fixture
def picking() -> Picking:
    return Picking()


@pytest.fixture
def recognising() -> Picking:
    """As production is configured, over another tie-breaker: always the last of the cheapest."""
    picking = Picking()
    placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: n - 1)
    picking.picker = Picker(placer, lambda: picking.now, picking)
    picking.picker.configure(parse(FILE, "f"))
    picking.picker.adopt(FLEET)
    return picking
