"""A picker follows control, and itself while control is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import httpx
import pytest

from homing.core.fleet import Fleet, Pool, Replica, encode
from homing.ext_proc import feed as feed_module
from homing.ext_proc.feed import Feed, follow

FIRST = Fleet((Pool("p", "m", replicas=(Replica("a", "127.0.0.1:1"),)),))
SECOND = Fleet((Pool("p", "m", replicas=(Replica("b", "127.0.0.1:2"),)),))


class Control:
    """Answers polls as the control service does; `down` closes every connection unanswered."""

    def __init__(self) -> None:
        self.fleet = FIRST
        self.down = False
        self.polls: list[tuple[str, str]] = []
        self.changed = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not self.down:
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
                query = httpx.URL(line.split()[1]).params
                self.polls.append((query["picker"], query["have"]))
                while not self.down and query["have"] == self.fleet.version:
                    self.changed.clear()
                    await self.changed.wait()
                if not self.down:
                    body = encode(self.fleet)
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    def tell(self, fleet: Fleet | None = None, *, down: bool = False) -> None:
        self.fleet, self.down = fleet or self.fleet, down
        self.changed.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (what it waits for is on the other side of a socket)
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(coroutine: Awaitable[None]):
    task = asyncio.ensure_future(coroutine)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def control():
    control = Control()
    server = await asyncio.start_server(control.serve, "127.0.0.1", 0)
    control.port = server.sockets[0].getsockname()[1]
    yield control
    control.tell(down=True)
    server.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "AWAY_S", 0.2)
    monkeypatch.setattr(feed_module, "RETRY_S", 0.02)


async def test_each_fleet_is_adopted_once_and_acknowledged_by_the_next_poll(control: Control) -> None:
    adopted: list[Fleet] = []
    async with running(Feed(f"http://127.0.0.1:{control.port}/", "picker-0", adopted.append).run()):
        await until(lambda: len(control.polls) == 2)
        control.tell(SECOND)
        await until(lambda: len(control.polls) == 3)
    assert adopted == [FIRST, SECOND]
    assert control.polls == [("picker-0", ""), ("picker-0", FIRST.version), ("picker-0", SECOND.version)]


async def test_while_control_is_away_the_picker_watches_itself_and_then_asks_again(control: Control) -> None:
    adopted: list[Fleet] = []
    watches: list[str] = []

    async def watch() -> None:
        watches.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            watches.append("ended")

    feed = Feed(f"http://127.0.0.1:{control.port}", "picker-0", adopted.append)
    async with running(follow(feed, watch)):
        await until(lambda: adopted == [FIRST])
        assert watches == []
        control.tell(down=True)
        await until(lambda: watches == ["started"])
        control.tell(down=False)
        await until(lambda: watches == ["started", "ended"])
        await until(lambda: adopted == [FIRST, FIRST])


async def test_without_control_from_the_start_the_picker_watches_itself() -> None:
    watching = asyncio.Event()

    async def watch() -> None:
        watching.set()
        await asyncio.Event().wait()

    async with running(follow(Feed("http://127.0.0.1:1", "picker-0", lambda _: None), watch)):
        async with asyncio.timeout(5):
            await watching.wait()


@pytest.fixture
async def other():
    control = Control()
    server = await asyncio.start_server(control.serve, "127.0.0.1", 0)
    control.port = server.sockets[0].getsockname()[1]
    yield control
    control.tell(down=True)
    server.close()


async def test_of_several_control_services_the_next_is_asked_when_one_is_gone(control: Control, other: Control) -> None:
    adopted: list[Fleet] = []
    feed = Feed(f"http://127.0.0.1:{control.port},http://127.0.0.1:{other.port}", "picker-0", adopted.append)
    async with running(feed.run()):
        await until(lambda: adopted == [FIRST] and len(control.polls) == 2)
        assert other.polls == []
        other.fleet = SECOND
        control.tell(down=True)
        await until(lambda: adopted == [FIRST, SECOND])
        assert feed.connected
        other.tell(FIRST)
        await until(lambda: adopted == [FIRST, SECOND, FIRST])


async def test_of_several_control_services_one_that_is_frozen_is_left(
    control: Control, other: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "WAIT_OF_SEVERAL_S", 0.1)
    monkeypatch.setattr(feed_module, "LATE_S", 0.1)
    feed = Feed(f"http://127.0.0.1:{control.port},http://127.0.0.1:{other.port}", "picker-0", lambda _: None)
    async with running(feed.run()):
        await until(lambda: len(control.polls) == 2)  # the second is never answered
        await until(lambda: len(other.polls) > 0)
        assert other.polls[0] == ("picker-0", FIRST.version)
