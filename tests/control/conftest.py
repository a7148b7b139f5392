"""Replicas of a few lines: real sockets, and every way to be unwell."""

import asyncio
import contextlib
from pathlib import Path
from random import Random

import httpx
import pytest

from homing.control.ads_server import AdsServer
from homing.control.api import Access, Parts, create_app
from homing.control.audit import Audit
from homing.control.discovery.sources import KINDS, Sources
from homing.control.drains import Drains
from homing.control.feed import Feed
from homing.control.membership import Membership
from homing.control.metrics import ControlCollector, registry
from homing.control.picker_metrics import PickerMetrics
from homing.control.picker_sessions import PickerSessions
from homing.control.policies import Policies
from homing.control.registrations import Registrations
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot
from homing.control.state import open_state
from homing.control.telling import Telling
from homing.control.tokens import TokenCheck
from homing.control.watch import FleetWatch
from homing.core.config import parse

SNAPSHOT = Snapshot({t: Resources.of({"a": b"1"} if t in (CDS, EDS) else {}) for t in (CDS, EDS, LDS, RDS)})


class FakeReplica:
    """Answers /health by its `mood`: ok, sick (500), hung (accepts and says nothing), endless (a body without end)."""

    def __init__(self):
        self.mood = "ok"
        self.asked = 0
        self.connections = 0
        self._server = None
        self._port = 0
        self._writers = set()

    @property
    def address(self):
        return f"127.0.0.1:{self._port}"

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self):
        """Connections are refused from now on."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.asked += 1
                await self._answer(writer)
        self._writers.discard(writer)
        writer.close()

    async def _answer(self, writer):
        match self.mood:
            case "ok":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            case "sick":
                writer.write(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n")
            case "hung":
                await asyncio.sleep(3600)
            case "endless":
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                while True:
                    writer.write(b"10000\r\n" + b"." * 65536 + b"\r\n")
                    await writer.drain()
        await writer.drain()


@pytest.fixture
async def replicas():
    """Three of them, listening."""
    made = [FakeReplica() for _ in range(3)]
    for replica in made:
        await replica.start()
    yield made
    for replica in made:
        await replica.stop()


@pytest.fixture
def until():
    """Waits for a condition, 5 s at most where nothing else is said."""

    async def wait(condition, limit_s=5):
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110 (what it waits for is on the other side of a socket)
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
async def background():
    """Runs a coroutine until the test ends."""
    tasks = []

    def run(coroutine):
        tasks.append(asyncio.create_task(coroutine))
        return tasks[-1]

    yield run
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception():
            raise task.exception()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def homing_yaml():
    """The text of a file with one pool of these addresses, probed fast."""

    def text(*addresses, more="", pool="p", template="{source: none}"):
        listed = "\n".join(f"    - {{id: r{i}, address: '{a}'}}" for i, a in enumerate(addresses))
        return (
            f"pools:\n  {pool}:\n    template: {template}\n    replicas:\n{listed}\n"
            f"health: {{interval_s: 0.1, timeout_s: 0.3, unhealthy_threshold: 2, healthy_threshold: 1}}\n{more}"
        )

    return text


@pytest.fixture
async def http_replies():
    """Serves one body for every request; gives the address."""
    servers = []

    async def serve(body):
        async def answer(reader, writer):
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
            writer.close()

        servers.append(await asyncio.start_server(answer, "127.0.0.1", 0))
        return f"127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()


class Service:
    """What a control service is made of, and its application."""

    def __init__(self, config, pickers=None):
        self.watch = FleetWatch(Path("homing.yaml"), Membership(config, ("api", *KINDS)), Random(1))
        self.ads, self.feed = AdsServer(), Feed(lambda: 0.0)
        telling = Telling(self.ads, self.feed, lambda config, fleet: SNAPSHOT)
        self.still = ("the first rollout",)
        self.left, self.unfit = {}, {}
        self.snapshot = SNAPSHOT
        self.sessions = PickerSessions({} if pickers is None else pickers)
        self.state, _ = open_state(None)
        self.audit = Audit(self.state, lambda: 1000.0)
        self.drains = Drains(self.watch.membership, self.census, self.state, lambda: 1000.0, interval_s=0.01)
        membership = self.watch.membership
        self.policies = Policies(self.watch.membership, self.state, lambda: 1000.0)
        self.registrations = Registrations(membership, self.state, lambda: 0.0)
        self.sources = Sources(membership, lambda kind, settings: None, self.state, Random(1))
        self.registry = registry(ControlCollector(self.watch, self.sources, telling, self.feed, self.ads))
        members = membership, self.drains, self.census, self.registrations, self.sources, self.audit
        told = self.ads, self.feed, self.registry, PickerMetrics({}), self.sessions
        access = Access(TokenCheck(lambda: membership.view.config.tokens, Path("homing.yaml")))
        refused, unfit = lambda: self.watch.reloader.refused, lambda place: self.unfit.get(place, "")
        news = lambda: self.still, refused, unfit, self.watch.templates.progress
        parts = Parts(*members, *told, *news, access, None, self.policies)
        self.app = create_app(parts)

    async def census(self):
        return self.left


@pytest.fixture
async def service(homing_yaml, background):
    """The control service's parts without their tasks, but for the drains'."""
    made = Service(parse(homing_yaml("10.0.0.1:80", "10.0.0.2:80"), "homing.yaml"))
    background(made.drains.run())
    yield made
    await made.state.close()


@pytest.fixture
def make_service():
    """The class, for services with pickers."""
    return Service


@pytest.fixture
async def client(service):
    transport = httpx.ASGITransport(app=service.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8600") as client:
        yield client
