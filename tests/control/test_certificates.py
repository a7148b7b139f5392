"""Certificates that are replaced on disk: taken if they are good, and what is said if not."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from authority import Authority
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from homing.control.certificates import (
    CertificateError,
    Certificates,
    Files,
    client_context,
    following,
    server_context,
    tried,
)
from homing.control.http_server import HttpServer, listening


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def files(authority, name="a", ca=None):
    directory = authority.directory
    return Files(directory / f"{name}.pem", directory / f"{name}-key.pem", directory / ca if ca else None)


def test_a_good_certificate_tells_when_it_runs_out(authority):
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    authority.issue("a", not_after=end)
    assert tried(files(authority, ca="ca.pem")) == end.timestamp()
    assert tried(Files(None, None, authority.directory / "ca.pem")) is None


def _no_such_file(authority):
    (authority.directory / "a.pem").unlink()


def _other_key(authority):
    authority.issue("b")
    (authority.directory / "b-key.pem").rename(authority.directory / "a-key.pem")


def _run_out(authority):
    authority.issue("a", not_after=datetime.now(UTC) - timedelta(hours=1))


def _cut_off(authority):
    authority.put("a.pem", (authority.directory / "a.pem").read_bytes()[:300])


def _no_pem(authority):
    authority.put("a-key.pem", b"hello")


def _no_authorities(authority):
    authority.put("ca.pem", b"")


BAD = {
    _no_such_file: "{0}/a.pem: there is no such file",
    _other_key: "{0}/a.pem, {0}/a-key.pem: the key does not fit the certificate",
    _run_out: "{0}/a.pem: certificate has expired",
    _cut_off: "{0}/a.pem, {0}/a-key.pem: not a certificate and a key in PEM",
    _no_pem: "{0}/a.pem, {0}/a-key.pem: not a certificate and a key in PEM",
    _no_authorities: "{0}/ca.pem: there is no certificate in PEM in it",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_what_cannot_be_used_is_refused_with_its_reason(authority, spoil):
    authority.issue("a")
    spoil(authority)
    with pytest.raises(CertificateError) as caught:
        tried(files(authority, ca="ca.pem"))
    assert str(caught.value) == BAD[spoil].format(authority.directory)


def test_a_key_that_others_may_read_is_warned_of_and_used(authority, caplog):
    authority.issue("a")
    Certificates("api", files(authority), server_context)
    assert caplog.messages == []
    (authority.directory / "a-key.pem").chmod(0o640)
    assert Certificates("api", files(authority), server_context).trouble == ""
    assert caplog.messages == [f"{authority.directory}/a-key.pem: others than its owner may read this key (chmod 600)"]


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_bad_new_certificate_leaves_the_old_one_and_is_said_once(authority, caplog, spoil):
    now = [0.0]
    authority.issue("a")
    held = Certificates("api", files(authority, ca="ca.pem"), lambda _: object(), lambda: now[0])
    first, expires = held.newest(), held.expires_s
    spoil(authority)
    said = BAD[spoil].format(authority.directory)
    for now[0] in (1.0, 2.0, 3.0):
        assert held.newest() is first
        assert (held.trouble, held.expires_s) == (said, expires)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        f"api: the certificate that was there before stays: {said}"
    ]
    authority.put("ca.pem", authority.ca.cert_pem.bytes())
    authority.issue("a")
    now[0] = 4.0
    assert held.newest() is not first
    assert held.trouble == ""


def test_files_are_looked_at_twice_a_second_at_most(authority):
    now = [0.0]
    authority.issue("a")
    held = Certificates("api", files(authority), lambda _: object(), lambda: now[0])
    first = held.newest()
    authority.issue("a")
    now[0] = 0.4
    assert held.newest() is first
    now[0] = 0.5
    assert held.newest() is not first


async def test_connections_get_the_newest_and_only_whom_it_trusts(authority):
    """uvicorn and httpx, both with contexts that they were given once."""
    shown = authority.issue("server")
    authority.issue("client")
    now = [0.0]
    serving = Certificates("api", files(authority, "server", "ca.pem"), server_context, lambda: now[0])
    asking = Certificates("client", files(authority, "client", "ca.pem"), client_context, lambda: now[0])
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("ok"))])
    server = HttpServer(app, tls=following(serving, server=True))
    with listening("127.0.0.1:0") as listener:
        port = listener.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve([listener]))

            async def ask(context: ssl.SSLContext) -> bytes:
                async with httpx.AsyncClient(verify=context, trust_env=False) as client:
                    answer = await client.get(f"https://127.0.0.1:{port}/")
                    assert answer.text == "ok"
                    der: bytes = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert(True)
                    return der

            known = following(asking, server=False)
            assert await ask(known) == shown
            again = authority.issue("server")
            now[0] += 1
            assert await ask(known) == again
            assert await ask(known) != shown
            with pytest.raises(httpx.HTTPError):
                await ask(authority.context())
            other = Authority(authority.directory / "other")
            other.issue("client")
            with pytest.raises(httpx.HTTPError):
                await ask(other.context("client"))
            server.should_exit = True


async def test_the_name_may_be_another_than_that_of_the_address(authority):
    authority.issue("server", "homing.internal")
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("ok"))])
    server = HttpServer(app, tls=server_context(files(authority, "server")))
    held = Certificates("client", Files(None, None, authority.directory / "ca.pem"), client_context)
    with listening("127.0.0.1:0") as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve([listener]))
            named = following(held, server=False, server_name="homing.internal")
            async with httpx.AsyncClient(verify=named, trust_env=False) as client:
                assert (await client.get(url)).text == "ok"
            async with httpx.AsyncClient(verify=following(held, server=False), trust_env=False) as client:
                with pytest.raises(httpx.ConnectError, match="IP address mismatch"):
                    await client.get(url)
            server.should_exit = True
