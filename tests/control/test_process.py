"""`homing control` as a process."""

import asyncio
import contextlib
import signal
import socket
import sys

import grpc
import httpx
import pytest
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest

from homing.control.snapshot import EDS
from homing.core.fleet import decode


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Control:
    """Starts the command; `ports` are xds and api."""

    def __init__(self, directory, text):
        self.ports = free_port(), free_port()
        self.file = directory / "homing.yaml"
        self.state = directory / "state"
        self.more = f"xds: 127.0.0.1:{self.ports[0]}\napi: 127.0.0.1:{self.ports[1]}\n"
        self.text = text

    def write(self, *addresses):
        self.file.write_text(self.text(*addresses, more=self.more))

    async def start(self, *arguments):
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "homing", "control", "-c", str(self.file), *arguments),
            stderr=asyncio.subprocess.PIPE,
        )
        return self.process

    async def ended(self):
        async with asyncio.timeout(15):
            _, stderr = await self.process.communicate()
        return self.process.returncode, stderr.decode().splitlines()

    def url(self, path):
        return f"http://127.0.0.1:{self.ports[1]}{path}"

    async def ready(self, client):
        async with asyncio.timeout(15):
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(self.url("/readyz"))).status_code == 200:
                        return
                assert self.process.returncode is None
                await asyncio.sleep(0.05)


@pytest.fixture
async def control(tmp_path, homing_yaml):
    made = Control(tmp_path, homing_yaml)
    yield made
    if made.process.returncode is None:
        made.process.kill()
        await made.process.wait()


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        yield client


def states(fleet):
    return {r.id: (r.address, r.healthy) for p in fleet.pools for r in p.replicas}


async def test_from_the_file_to_the_pickers_and_envoys_and_a_clean_end(control, client, replicas):
    control.write(replicas[0].address)
    await control.start("--picker", "unix:/run/p.sock", "--state-dir", str(control.state))
    await control.ready(client)
    first = await client.get(control.url("/api/feed"), params={"picker": "p1"})
    assert states(decode(first.content)) == {"r0": (replicas[0].address, True)}
    async with asyncio.timeout(5):
        while not (control.state / "fleet.json").exists():  # noqa: ASYNC110 (written by the other process)
            await asyncio.sleep(0.02)
    assert (control.state / "fleet.json").read_bytes() == first.content
    assert {p.name for p in control.state.iterdir()} >= {"cds.json", "lds.json"}

    async with grpc.aio.insecure_channel(f"127.0.0.1:{control.ports[0]}") as channel:
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        await call.write(DiscoveryRequest(type_url=EDS, resource_names=["p"]))
        assert (await asyncio.wait_for(call.read(), 5)).type_url == EDS

        # A new file by SIGHUP; the poll that waits hears of it. The stream lets its 2 s run out.
        have = decode(first.content).version
        polling = asyncio.create_task(client.get(control.url("/api/feed"), params={"picker": "p1", "have": have}))
        control.write(replicas[0].address, replicas[1].address)
        control.process.send_signal(signal.SIGHUP)
        second = decode((await polling).content)
        assert states(second)["r1"][0] == replicas[1].address

        # An open poll and an open stream are no reason to stay.
        polling = asyncio.create_task(
            client.get(control.url("/api/feed"), params={"picker": "p1", "have": second.version})
        )
        await asyncio.sleep(0.1)
        control.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(3):
            await control.process.wait()
        with contextlib.suppress(httpx.HTTPError):
            await polling
    code, lines = await control.ended()
    assert code == 0
    assert [line for line in lines if not line.startswith(("INFO", "WARNING homing.control.ads_server"))] == []


async def test_what_was_found_and_registered_is_there_after_a_restart_without_its_sources(control, client, replicas):
    found = control.file.with_name("replicas.json")
    found.write_text(f'[{{"id": "found", "address": "{replicas[0].address}"}}]')
    control.text = lambda more: f"pools: {{p: {{discovery: {{file: replicas.json, api: true}}}}}}\n{more}"
    control.file.write_text(control.text(more=control.more))
    await control.start("--state-dir", str(control.state))
    await control.ready(client)
    body = {"address": replicas[1].address, "ttl_s": 60}
    assert (await client.put(control.url("/api/pools/p/replicas/x"), json=body)).json()["believed"] == "api"
    control.process.kill()
    await control.process.wait()
    found.unlink()
    await control.start("--state-dir", str(control.state))
    await control.ready(client)
    first = await client.get(control.url("/api/feed"), params={"picker": "p1"})
    assert states(decode(first.content)) == {"x": (replicas[1].address, True), "found": (replicas[0].address, True)}
    (source,) = (await client.get(control.url("/api/sources"))).json()["sources"]
    assert (source["replicas"], "no such file" in source["error"]) == (1, True)


async def test_ctrl_c_before_it_is_ready_ends_it_too(control, client, replicas):
    replicas[0].mood = "hung"
    control.write(replicas[0].address)
    await control.start()
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(control.url("/healthz"))).status_code == 200:
                    break
            await asyncio.sleep(0.02)
    control.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(3):
        await control.process.wait()
    code, lines = await control.ended()
    assert (code, [line for line in lines if not line.startswith("INFO")]) == (0, [])


@pytest.mark.parametrize("which", [0, 1])
async def test_a_port_in_use_is_one_line_and_exit_2(control, which):
    control.write("127.0.0.1:1")
    with socket.create_server(("127.0.0.1", control.ports[which])):
        await control.start()
        code, lines = await control.ended()
    name = ("xds", "api")[which]
    assert (code, lines) == (2, [f"Error: port {control.ports[which]} ({name}) is in use"])


async def test_a_bad_file_is_one_line_per_problem_and_exit_2(control):
    control.file.write_text("pools: {}\nlissten: 1\n")
    await control.start()
    code, lines = await control.ended()
    assert code == 2
    assert any("lissten" in line for line in lines)
    assert all(line.startswith(f"{control.file}:") for line in lines)


async def test_a_state_directory_that_cannot_be_is_one_line_and_exit_2(control, tmp_path):
    control.write("127.0.0.1:1")
    await control.start("--state-dir", str(control.file / "state"))
    code, (line,) = await control.ended()
    assert code == 2
    assert str(control.file) in line


async def test_an_address_that_is_none_is_one_line_and_exit_2(control):
    control.write("127.0.0.1:1")
    await control.start("--picker", "somewhere")
    code, (line,) = await control.ended()
    assert code == 2
    assert "'somewhere' is neither unix:/path nor host:port" in line
