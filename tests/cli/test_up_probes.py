"""When a child counts as ready; small servers of our own answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from homing.cli.probes import Accepts, Answers, Asks, Every, reachable
from homing.core.config import Address


async def answer(healthy: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """200 for /readyz, so many `healthy` pickers for /stats, 503 for all else; no HTTP for /noise."""
    path = (await reader.readuntil(b"\r\n\r\n")).split()[1].partition(b"?")[0]
    body = b"cluster.homing-pickers.membership_healthy: %d\n" % healthy if path == b"/stats" else b""
    status = b"200 OK" if path in (b"/readyz", b"/stats") else b"503 Service Unavailable"
    head = b"noise" if path == b"/noise" else b"HTTP/1.1 " + status
    writer.write(head + b"\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
    writer.close()


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment must not be asked for what is on this machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:1")


@asynccontextmanager
async def listening(where: Path | str, healthy: int = 0) -> AsyncIterator[str]:
    """The address of a server on a Unix socket or on a free port of a host."""
    say = partial(answer, healthy)
    server = await (
        asyncio.start_unix_server(say, where) if isinstance(where, Path) else asyncio.start_server(say, where, 0)
    )
    async with server:
        host = server.sockets[0].getsockname()
        yield f"unix:{where}" if isinstance(where, Path) else f"{host[0]}:{host[1]}"


@pytest.fixture
def nobody() -> Iterator[Address]:
    """An address that is bound, and not listened on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield Address(*sock.getsockname())


@pytest.mark.parametrize(("path", "ready"), [("/readyz", True), ("/other", False), ("/noise", False)])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_only_200_is_ready(kind: str, path: str, ready: bool, tmp_path: Path) -> None:
    async with listening(tmp_path / "s" if kind == "unix" else "127.0.0.1") as address:
        assert await Answers(address, path)() is ready


async def test_nobody_there_is_not_ready(nobody: Address, tmp_path: Path) -> None:
    assert not await Answers(str(nobody), "/readyz")()
    assert not await Answers(f"unix:{tmp_path}/none", "/readyz")()
    assert not await Accepts(nobody)()


async def test_a_listener_accepts() -> None:
    async with listening("127.0.0.1") as address:
        assert await Accepts(Address.parse(address))()


@pytest.mark.parametrize(("asked", "ready", "yes"), [(1, 1, True), (1, 2, False), (1, 0, True), (0, 0, False)])
async def test_envoy_asks_one_picker_at_least_and_all_that_are_ready(asked: int, ready: int, yes: bool) -> None:
    async with listening("127.0.0.1", healthy=asked) as there:
        assert await Asks(there, (there,) * ready)() is yes


async def test_every_probe_must_agree(nobody: Address) -> None:
    async with listening("127.0.0.1") as address:
        there = Accepts(Address.parse(address))
        assert await Every((there, there))()
        assert not await Every((there, Accepts(nobody)))()


@pytest.mark.parametrize(
    ("listens", "connect"),
    [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.1.2.3:80", "10.1.2.3:80")],
)
def test_what_listens_everywhere_is_reached_here(listens: str, connect: str) -> None:
    assert str(reachable(Address.parse(listens))) == connect
