"""The real SDK, against an HTTP server on a Unix socket that speaks what the Engine API documents: version, list of
containers, events. No engine runs here: what one really sends may differ."""

import asyncio
import contextlib
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from homing.control.discovery.docker import DockerSource
from homing.control.discovery.source import Found, SourceError
from homing.core.config import Docker


def container(name, host, labels=None, network="bridge"):
    """As GET /containers/json gives it, shortened."""
    return {
        "Id": "0" * 64,
        "Names": [f"/{name}"],
        "State": "running",
        "Labels": {"homing.pool": "qwen"} | (labels or {}),
        "NetworkSettings": {"Networks": {network: {"IPAddress": host, "NetworkID": "1"}}},
    }


class Engine:
    def __init__(self):
        self.containers = []
        self.filters = []
        self.streams = []
        self.broken = False

    async def serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                url = urlsplit(head.split()[1].decode())
                query = {k: v for k, (v,) in parse_qs(url.query).items()}
                if url.path.endswith("/version"):
                    self._answer(writer, {"ApiVersion": "1.44", "Version": "26.0"})
                elif self.broken:
                    self._answer(writer, {"message": "the daemon is tired"}, b"500 Internal Server Error")
                elif url.path.endswith("/containers/json"):
                    self.filters.append(json.loads(query["filters"]))
                    self._answer(writer, self.containers)
                elif url.path.endswith("/events"):
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
                    )
                    self.streams.append(writer)
                await writer.drain()

    def _answer(self, writer, body, status=b"200 OK"):
        data = json.dumps(body).encode()
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data))
        writer.write(head + data)

    def event(self, action):
        line = json.dumps({"Type": "container", "Action": action}).encode() + b"\n"
        for stream in self.streams:
            stream.write(b"%x\r\n%s\r\n" % (len(line), line))

    def end_streams(self):
        for stream in self.streams:
            stream.write(b"0\r\n\r\n")
            stream.close()


@pytest.fixture
async def engine(tmp_path):
    made = Engine()
    made.url = f"unix://{tmp_path}/docker.sock"
    server = await asyncio.start_unix_server(made.serve, tmp_path / "docker.sock")
    yield made
    made.end_streams()
    server.close()


@pytest.fixture
def source(engine):
    return DockerSource(Docker(label="homing.pool=qwen", port=8000, engine=engine.url))


async def test_running_containers_with_the_label(engine, source, follow):
    engine.containers = [container("b", "172.17.0.3"), container("a", "172.17.0.2")]
    assert await follow(source).next() == (Found("a", "172.17.0.2:8000"), Found("b", "172.17.0.3:8000"))
    assert {k: list(v) for k, v in engine.filters[0].items()} == {"label": ["homing.pool=qwen"], "status": ["running"]}


async def test_an_event_is_a_reason_to_look_again(engine, source, follow, until):
    said = follow(source)
    assert await said.next() == ()
    waiting = asyncio.create_task(said.next())
    await until(lambda: engine.streams)
    engine.containers = [container("a", "172.17.0.2")]
    engine.event("start")
    assert await waiting == (Found("a", "172.17.0.2:8000"),)


async def test_labels_say_more(engine, source, follow):
    engine.containers = [
        container("x", "172.17.0.2", {"homing.id": "gpu-a", "homing.port": "9000", "homing.weight": "2"}),
        container("odd", "172.17.0.3", {"homing.port": "http"}),
        container("nowhere", ""),
    ]
    assert await follow(source).next() == (Found("gpu-a", "172.17.0.2:9000", 2),)


async def test_of_several_networks_the_one_that_is_named(engine, follow):
    both = container("a", "172.17.0.2")
    both["NetworkSettings"]["Networks"]["serving"] = {"IPAddress": "10.5.0.2"}
    engine.containers = [both]
    named = DockerSource(Docker(label="homing.pool=qwen", network="serving", engine=engine.url))
    assert await follow(named).next() == (Found("a", "10.5.0.2:8000"),)


async def test_an_engine_that_is_not_there_is_a_failure(tmp_path, follow):
    gone = DockerSource(Docker(label="x", engine=f"unix://{tmp_path}/none.sock"))
    with pytest.raises(SourceError, match=r"none\.sock"):
        await follow(gone).next()


async def test_an_engine_that_refuses_is_a_failure(engine, source, follow):
    engine.broken = True
    with pytest.raises(SourceError, match="tired"):
        await follow(source).next()


async def test_a_stream_of_events_that_ends_is_a_failure(engine, source, follow, until):
    said = follow(source)
    await said.next()
    waiting = asyncio.create_task(said.next())
    await until(lambda: engine.streams)
    engine.end_streams()
    with pytest.raises(SourceError, match="has ended"):
        await waiting
