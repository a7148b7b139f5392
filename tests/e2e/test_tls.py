"""All of homing with TLS on every listener: who is let in, and certificates and tokens that are replaced under load."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import httpx
import pytest
from authority import Authority
from e2e.stack import HOMING, until
from e2e.tls_stack import ADMIN_TOKEN, FLEET_TOKEN, LISTENERS, SimulatedPool, TlsStack, tls_stack
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest

pytestmark = pytest.mark.e2e

POOL = SimulatedPool("p", "m", 2)
CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


@pytest.fixture(scope="module")
def mutual(short_directory: Path) -> Iterator[TlsStack]:
    with tls_stack(short_directory / "mutual", POOL) as stack:
        yield stack


def shown(stack: TlsStack, listener: str) -> bytes:
    """The certificate by which a new connection knows the listener."""
    context = stack.authority.context("client")
    with (
        socket.create_connection(("127.0.0.1", stack.ports[listener]), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def lets_in(stack: TlsStack, listener: str, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 a server refuses what a client shows after the client's handshake is over."""
    context.set_alpn_protocols(["h2"] if listener in ("xds", "picker") else ["http/1.1"])
    said = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
        if listener in ("xds", "picker")
        else b"GET /x HTTP/1.0\r\n\r\n"
    )
    try:
        with (
            socket.create_connection(("127.0.0.1", stack.ports[listener]), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            secure.sendall(said)
            return bool(secure.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


def test_sessions_come_home(mutual: TlsStack) -> None:
    before = mutual.stat("http.homing.ext_proc.failure_mode_allowed")
    first = mutual.chat()
    again = [mutual.chat(first.headers["x-session-id"]) for _ in range(5)]
    assert {r.headers["x-homing-replica"] for r in again} == {first.headers["x-homing-replica"]}
    assert {r.headers["x-homing-decision"] for r in again} == {"home"}
    assert mutual.stat("http.homing.ext_proc.failure_mode_allowed") == before


@pytest.mark.parametrize("listener", LISTENERS)
def test_who_shows_no_certificate_of_ours_is_not_let_in(mutual: TlsStack, listener: str, tmp_path: Path) -> None:
    strangers = Authority(tmp_path)
    strangers.issue("client")
    stranger = mutual.authority.context()
    stranger.load_cert_chain(tmp_path / "client.pem", tmp_path / "client-key.pem")
    assert lets_in(mutual, listener, mutual.authority.context("client"))
    assert not lets_in(mutual, listener, mutual.authority.context())
    assert not lets_in(mutual, listener, stranger)


def test_commands_read_what_they_need_from_the_file(mutual: TlsStack) -> None:
    status = homing("status", "-c", str(mutual.file))
    assert (status.returncode, "2 of 2 replicas" in status.stdout) == (0, True), status
    assert "homing-envoy" in status.stdout
    assert "certificate" not in status.stdout


def test_commands_take_what_they_need_from_options(mutual: TlsStack, tmp_path: Path) -> None:
    certs = mutual.authority.directory
    place = ("-c", str(tmp_path / "none.yaml"), "--api", f"https://127.0.0.1:{mutual.ports['api']}")
    trust = ("--ca", str(certs / "ca.pem"), "--cert", str(certs / "client.pem"), "--key", str(certs / "client-key.pem"))
    assert homing("status", *place, *trust).returncode == 0
    unknown = homing("status", *place)
    assert unknown.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in unknown.stderr
    refused = homing("undrain", "p/r0", *place, *trust)
    assert (refused.returncode, refused.stderr) == (1, "Error: tokens.admin is asked for (authorization: Bearer)\n")
    taken = homing("undrain", "p/r0", *place, *trust, "--token", "env:HOMING_TEST_ADMIN")
    assert (taken.returncode, taken.stdout) == (0, "p/r0 was not drained\n")


def troubles(stack: TlsStack) -> dict[str, str]:
    """What control has against certificates on its disk, by use."""
    with stack.client("api") as client:
        return {each["use"]: each["trouble"] for each in client.get("/api/certificates").json()}


def homing(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*HOMING, *arguments), capture_output=True, text=True, check=False, timeout=60)


def under_load(stack: TlsStack, act: Callable[[], None]) -> list[object]:
    """What went wrong for clients that connect anew for each request, while `act` runs."""
    wrong: list[object] = []
    context = stack.authority.context("client")
    done, served = threading.Event(), [0, 0]

    def ask(number: int) -> None:
        while not done.is_set():
            try:
                answer = stack.chat(f"load-{number}", context)
                served[number] += 1
                if answer.status_code != 200 or answer.headers["x-homing-decision"] == "fallback":
                    wrong.append((answer.status_code, dict(answer.headers)))
            except (httpx.HTTPError, OSError) as error:
                wrong.append(error)

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for client in clients:
        client.start()
    try:
        act()
    finally:
        done.set()
        for client in clients:
            client.join(20)
    assert min(served) > 0
    return wrong


def test_certificates_are_replaced_under_load_without_a_failed_request(mutual: TlsStack) -> None:
    def replace() -> None:
        new = {name: mutual.authority.issue(name) for name in LISTENERS}
        mutual.authority.issue("client")
        for name in LISTENERS:
            until(lambda name=name: shown(mutual, name) == new[name], what=f"{name}'s new certificate")

    assert under_load(mutual, replace) == []
    assert set(troubles(mutual).values()) == {""}


def test_a_certificate_that_does_not_fit_or_has_run_out_is_kept_out(mutual: TlsStack) -> None:
    failed = "sds.homing-listen.key_rotation_failed"
    before, rejected = {name: shown(mutual, name) for name in LISTENERS}, mutual.stat(failed)

    def spoil() -> None:
        for name in LISTENERS:
            if name == "api":
                mutual.authority.issue(name, not_after=datetime.now(UTC) - timedelta(days=1))
            else:
                mutual.authority.issue("other")
                mutual.authority.put(f"{name}-key.pem", (mutual.authority.directory / "other-key.pem").read_bytes())
        until(lambda: troubles(mutual)["api"] != "", what="what the API has against its own")
        until(lambda: mutual.stat(failed) > rejected, what="Envoy's refusal")

    assert under_load(mutual, spoil) == []
    assert {name: shown(mutual, name) for name in LISTENERS} == before
    certs = mutual.authority.directory
    assert troubles(mutual) == {
        "api": f"{certs}/api.pem: certificate has expired",
        "xds": f"{certs}/xds.pem, {certs}/xds-key.pem: the key does not fit the certificate",
        "client": "",
        "engine p": "",
    }
    assert "certificate (api): the one before stays" in homing("status", "-c", str(mutual.file)).stdout
    with mutual.client("api") as client:
        metrics = client.get("/metrics").text
    assert 'homing_certificate_good{use="api"} 0.0' in metrics
    assert 'homing_certificate_good{use="client"} 1.0' in metrics
    assert 'homing_certificate_good{picker="picker",use="picker"} 0.0' in metrics
    assert "homing_certificate_expires_timestamp_seconds" in metrics
    for name in LISTENERS:
        mutual.authority.issue(name)
    until(lambda: not any(troubles(mutual).values()), what="good certificates to be taken")


def test_engines_speak_tls_by_address_and_by_name(mutual: TlsStack) -> None:
    """To Envoy, to probes and proofs of control, and to pickers that ask for counters."""
    until(lambda: mutual.stat("cluster.p.membership_healthy") == 2, what="healthy replicas in Envoy")
    with mutual.client("api") as client:
        (pool,) = client.get("/api/fleet").json()["pools"]
        assert [(r["tls"], r["healthy"], r["trouble"]) for r in pool["replicas"]] == [
            ("127.0.0.1", True, ""),
            ("localhost", True, ""),
        ]
        until(lambda: client.get("/api/fleet").json()["pools"][0]["replicas"][1]["epoch"] > 0, what="its start time")
    assert {mutual.chat().headers["x-homing-replica"] for _ in range(20)} == {"r0", "r1"}
    assert homing("check", "-c", str(mutual.file), "--engine").returncode == 0


def test_an_engine_of_another_authority_is_said_and_gets_nothing(mutual: TlsStack, tmp_path: Path) -> None:
    others, certs = Authority(tmp_path), mutual.engines.directory
    others.issue("r0", "127.0.0.1")
    before = {name: (certs / name).read_bytes() for name in ("r0.pem", "r0-key.pem")}
    mutual.processes.kill("r0")
    for name in before:
        mutual.engines.put(name, (tmp_path / name).read_bytes())
    mutual.start_replica("r0")
    why = "its certificate is not taken: unable to get local issuer certificate"
    until(lambda: f"unhealthy: {why}" in homing("status", "-c", str(mutual.file)).stdout, 60, what="the reason")
    until(lambda: mutual.stat("cluster.p.membership_healthy") == 1, what="Envoy to see it too")
    assert {mutual.chat().headers["x-homing-replica"] for _ in range(6)} == {"r1"}
    for name, content in before.items():
        mutual.engines.put(name, content)
    mutual.processes.kill("r0")
    mutual.start_replica("r0")
    until(lambda: mutual.stat("cluster.p.membership_healthy") == 2, 60, what="the replica to be back")


def test_check_says_which_certificate_it_does_not_take(mutual: TlsStack, tmp_path: Path) -> None:
    Authority(tmp_path)
    file = mutual.processes.directory / "wrong.yaml"
    file.write_text(mutual.file.read_text().replace("file:engines/ca.pem", f"file:{tmp_path}/ca.pem"))
    checked = homing("check", "-c", str(file), "--engine")
    assert checked.returncode == 1
    assert "its certificate is not taken: unable to get local issuer certificate" in checked.stdout


@pytest.fixture(scope="module")
def by_token(short_directory: Path) -> Iterator[TlsStack]:
    """TLS without certificates of clients: they show tokens."""
    with tls_stack(short_directory / "token", POOL, asks=False) as stack:
        yield stack


def told(stack: TlsStack, token: str | None) -> str:
    """What xDS says to somebody with that token: the type of its answer, or the status."""
    credentials = grpc.ssl_channel_credentials((stack.authority.directory / "ca.pem").read_bytes())
    metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
    with grpc.secure_channel(f"127.0.0.1:{stack.ports['xds']}", credentials) as channel:
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        try:
            request = iter([DiscoveryRequest(type_url=CDS)])
            answer = next(iter(stub.StreamAggregatedResources(request, metadata=metadata, timeout=10)))
        except grpc.RpcError as error:
            return str(error.code())  # type: ignore[attr-defined]
    return str(answer.type_url)


def test_xds_speaks_to_those_alone_who_show_the_token(by_token: TlsStack) -> None:
    assert told(by_token, None) == "StatusCode.UNAUTHENTICATED"
    assert told(by_token, "wrong") == "StatusCode.UNAUTHENTICATED"
    assert told(by_token, FLEET_TOKEN) == CDS
    assert told(by_token, ADMIN_TOKEN) == CDS


def test_a_token_that_is_replaced_is_shown_by_envoy_and_pickers_without_a_restart(by_token: TlsStack) -> None:
    by_token.authority.put("fleet-token", b"another-token-of-this-test")
    assert told(by_token, FLEET_TOKEN) == "StatusCode.UNAUTHENTICATED"
    by_token.processes.kill("control")
    by_token.start_control()

    def connected() -> bool:
        with by_token.client("api") as client:
            try:
                streams = client.get("/api/xds").json()["streams"]
                metrics = client.get("/metrics").text
            except httpx.HTTPError:
                return False
        return [s["answer"] for s in streams] == ["acked"] and "homing_feed_pickers 1.0" in metrics

    until(connected, 60, what="Envoy and the picker at a new control service")
    assert by_token.chat().headers["x-homing-decision"] == "new"
    for name in ("envoy", "control", "picker"):
        assert "-token-of-this-test" not in by_token.processes.log(name)
