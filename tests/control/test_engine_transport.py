"""Engines that speak TLS, asked at plain URLs: whom they are trusted by, and what is said where they are not."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from authority import Authority
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from homing.control.certificates import Files, server_context
from homing.control.engine_transport import EngineTransport, EngineTrust
from homing.control.health import HttpProbe
from homing.control.http_server import HttpServer, listening
from homing.core.config import HealthCheck, parse


@contextlib.asynccontextmanager
async def engine(certificates: Path | None, ca: Path | None = None):
    """Its port. `certificates`: where its e.pem is; None: plain HTTP."""
    context = None
    if certificates is not None:
        context = server_context(Files(certificates / "e.pem", certificates / "e-key.pem", ca))
    app = Starlette(routes=[Route("/health", lambda request: PlainTextResponse(request.headers.get("x-a", "")))])
    server = HttpServer(app, tls=context)
    with listening("127.0.0.1:0") as listener:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve([listener]))
            yield listener.getsockname()[1]
            server.should_exit = True


@dataclass
class Known:
    """What a process knows, as its file says it."""

    file: Path
    text: str
    trust: EngineTrust = field(init=False)

    def __post_init__(self) -> None:
        self.say(self.text)
        self.trust = EngineTrust(lambda: (self.config, self.fleet), self.file)

    def say(self, text: str) -> None:
        self.config = parse(text, "f")
        self.fleet = self.config.fleet()

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=EngineTransport(self.trust), trust_env=False)


def pool(engine_keys: str, *addresses: str) -> str:
    replicas = ", ".join(f"{{id: r{i}, address: '{address}'}}" for i, address in enumerate(addresses))
    return f"pools: {{p: {{engine: {{{engine_keys}}}, replicas: [{replicas}]}}}}"


@pytest.fixture
def authority(tmp_path):
    made = Authority(tmp_path / "engines")
    made.issue("e")
    made.issue("client")
    return made


async def test_some_speak_tls_and_others_do_not(authority, tmp_path):
    async with engine(authority.directory) as secure, engine(None) as open_port:
        addresses = f"https://127.0.0.1:{secure}", f"127.0.0.1:{open_port}"
        known = Known(tmp_path / "homing.yaml", pool("ca: file:engines/ca.pem", *addresses))
        async with known.client() as client:
            for port in (secure, open_port, secure):
                answer = await client.get(f"http://127.0.0.1:{port}/health", headers={"x-a": "b"})
                assert (answer.status_code, answer.text) == (200, "b")
        assert known.trust.troubles == {}
        assert [held.name for held in known.trust.held] == ["engine p"]


async def test_discovered_engines_speak_tls_where_the_pool_says_so(authority, tmp_path):
    async with engine(authority.directory) as port:
        known = Known(tmp_path / "homing.yaml", pool("ca: file:engines/ca.pem, tls: true", f"127.0.0.1:{port}"))
        async with known.client() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200


async def test_an_engine_may_ask_for_our_certificate(authority, tmp_path):
    async with engine(authority.directory, authority.directory / "ca.pem") as port:
        shown = "cert: file:engines/client.pem, key: file:engines/client-key.pem"
        known = Known(tmp_path / "homing.yaml", pool(f"ca: file:engines/ca.pem, {shown}", f"https://127.0.0.1:{port}"))
        async with known.client() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
        known.say(pool("ca: file:engines/ca.pem", f"https://127.0.0.1:{port}"))
        async with known.client() as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"http://127.0.0.1:{port}/health")


WRONG = {
    "ca: file:other/ca.pem": "its certificate is not taken: unable to get local issuer certificate",
    "tls: true": "its certificate is not taken: unable to get local issuer certificate",  # the system's authorities
    "ca: file:engines/ca.pem, server_name: vllm.internal": (
        "its certificate is not taken: Hostname mismatch, certificate is not valid for 'vllm.internal'."
    ),
    "ca: file:none.pem": "{0}/none.pem: there is no such file",
}


@pytest.mark.parametrize("keys", WRONG)
async def test_what_is_wrong_with_a_certificate_is_said_until_it_is_right(authority, tmp_path, keys):
    Authority(tmp_path / "other")
    async with engine(authority.directory) as port:
        address = f"127.0.0.1:{port}"
        known = Known(tmp_path / "homing.yaml", pool(keys, f"https://{address}"))
        async with HttpProbe(known.trust) as probe:
            assert await probe(address, HealthCheck())
            assert known.trust.troubles == {address: WRONG[keys].format(tmp_path)}
            known.say(pool("ca: file:engines/ca.pem", f"https://{address}"))
            assert await probe(address, HealthCheck()) == ""
        assert known.trust.troubles == {}


async def test_one_that_speaks_no_tls_is_told_from_one_that_is_not_there(authority, tmp_path):
    async with engine(None) as port:
        known = Known(tmp_path / "homing.yaml", pool("ca: file:engines/ca.pem", f"https://127.0.0.1:{port}"))
        async with HttpProbe(known.trust) as probe:
            assert await probe(f"127.0.0.1:{port}", HealthCheck())
    (trouble,) = known.trust.troubles.values()
    assert trouble.startswith("TLS fails: ")


async def test_other_authorities_are_taken_without_a_restart(authority, tmp_path):
    other = Authority(tmp_path / "other")
    other.issue("e")
    async with engine(other.directory) as port:
        address = f"127.0.0.1:{port}"
        known = Known(tmp_path / "homing.yaml", pool("ca: file:engines/ca.pem", f"https://{address}"))
        async with HttpProbe(known.trust) as probe:
            assert await probe(address, HealthCheck())
            authority.put("ca.pem", other.ca.cert_pem.bytes())
            async with asyncio.timeout(5):
                while await probe(address, HealthCheck()):  # noqa: ASYNC110 (it is a file that changes)
                    await asyncio.sleep(0.1)
