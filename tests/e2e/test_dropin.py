"""The drop-in, live: strangers' Envoys with fragments pasted in, pickers without control, simulated replicas."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from e2e.stack import until
from e2e.strangers_stack import PLAIN, STRICT_DNS, DroppedInStack, dropped_in

pytestmark = pytest.mark.e2e

USER = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def plain(short_directory: Path) -> Iterator[DroppedInStack]:
    """One pool, the four fragments without which sessions do not come home."""
    with dropped_in(short_directory / "plain", PLAIN, PLAIN.minimal()) as stack:
        yield stack


@pytest.fixture(scope="module")
def plain_all(short_directory: Path) -> Iterator[DroppedInStack]:
    """One pool, the user's own route, pickers on TCP ports."""
    names = (*PLAIN.minimal(), "listener", "http-connection-manager", "route")
    with dropped_in(short_directory / "plain-all", PLAIN, names, tcp=True) as stack:
        yield stack


@pytest.fixture(scope="module")
def strict_dns(short_directory: Path) -> Iterator[DroppedInStack]:
    """Two pools, chosen by the user's own routes."""
    with dropped_in(short_directory / "dns", STRICT_DNS, STRICT_DNS.minimal()) as stack:
        yield stack


def chat(
    stack: DroppedInStack, model: str | None, session: str | None = None, path: str = CHAT, **headers: str
) -> httpx.Response:
    body = {"messages": USER, "max_tokens": 4} | ({"model": model} if model else {})
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if session is not None:
        sent["x-session-id"] = session
    return httpx.post(stack.url + path, json=body, headers=sent, timeout=10, trust_env=False)


def twenty_turns(stack: DroppedInStack, model: str | None, path: str = CHAT, **headers: str) -> tuple[str, str]:
    """A session that begins here, and where it lives. Returns (session id, replica)."""
    first = chat(stack, model, path=path, **headers)
    assert first.status_code == 200, first.text
    session, home = first.headers["x-session-id"], first.headers["x-homing-replica"]
    for _ in range(19):
        answer = chat(stack, model, session, path, **headers)
        assert (answer.status_code, answer.headers["x-homing-replica"]) == (200, home)
        assert answer.headers["x-session-id"] == session
    return session, home


def sessions_stay_without_pickers(stack: DroppedInStack, model: str | None, path: str = CHAT) -> None:
    """Kills both pickers; sessions from before stay home, sessions born now stick. Starts the pickers again."""
    begun = [chat(stack, model, path=path) for _ in range(12)]
    assert {answer.headers["x-homing-decision"] for answer in begun} == {"new"}
    stack.processes.kill("picker")
    stack.processes.kill("standby")
    try:
        born = [chat(stack, model, path=path) for _ in range(6)]
        for answer in (*begun, *born):
            again = chat(stack, model, answer.headers["x-session-id"], path)
            assert again.status_code == 200
            assert again.headers["x-homing-decision"] == "fallback"
            assert again.headers["x-homing-replica"] == answer.headers["x-homing-replica"]
    finally:
        for name in ("picker", "standby"):
            stack.start_picker(name)
        until(stack.pickers_ready)
        until(lambda: stack.pickers_in_service() == 2)


def test_four_fragments_bring_the_sessions_of_one_pool_home(plain: DroppedInStack) -> None:
    before = plain.fail_opens()
    assert len(plain.fragments) == 4
    session, home = twenty_turns(plain, "qwen")
    assert chat(plain, "qwen", session).headers["x-homing-decision"] == "home"
    assert chat(plain, None, session).headers["x-homing-replica"] == home
    assert plain.fail_opens() == before


def test_four_fragments_keep_sessions_home_without_pickers(plain: DroppedInStack) -> None:
    sessions_stay_without_pickers(plain, "qwen")


def test_with_four_fragments_the_engine_s_own_errors_pass(plain: DroppedInStack) -> None:
    """No routes of homing's: an unknown model and a bad body are the engine's to answer."""
    unknown = chat(plain, "nope")
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "NotFoundError")
    malformed = httpx.post(f"{plain.url}{CHAT}", content=b'{"model":"qwen",', headers=JSON, trust_env=False)
    assert malformed.status_code == 400
    assert malformed.headers["x-homing-replica"].startswith("vllm-")


JSON = {"content-type": "application/json"}


def test_a_client_cannot_choose_the_replica(plain: DroppedInStack) -> None:
    session, home = twenty_turns(plain, "qwen")
    for replica, port in plain.replica_ports.items():
        named = chat(plain, "qwen", session, x_gateway_destination_endpoint=f"127.0.0.1:{port}", x_homing_key=replica)
        assert named.headers["x-homing-replica"] == home


def test_a_dead_replica_is_left_out_and_its_sessions_move(plain_all: DroppedInStack) -> None:
    session, home = twenty_turns(plain_all, "qwen")
    plain_all.processes.kill(home)
    moved = chat(plain_all, "qwen", session)
    assert moved.status_code == 200
    assert moved.headers["x-homing-replica"] != home
    until(lambda: plain_all.metric("homing_in_flight") == 0)
    answers = [chat(plain_all, "qwen", session) for _ in range(5)]
    assert {a.headers["x-homing-replica"] for a in answers} == {moved.headers["x-homing-replica"]}
    plain_all.start_replica(plain_all.pools[0], home)
    until(lambda: plain_all.healthy_hosts() == 3, what="the replica to be back")


def test_the_access_log_of_its_own_stays_and_the_picker_hears_of_outcomes(plain_all: DroppedInStack) -> None:
    log = plain_all.processes.directory / "access.log"
    for _ in range(3):
        assert chat(plain_all, "qwen").status_code == 200
    until(lambda: plain_all.metric("homing_outcomes_total", pool="vllm", status="2xx") >= 3, what="outcomes")
    until(lambda: log.read_text().count(CHAT) >= 3, what="the access log")  # Envoy writes it every 10 s


def test_envoy_s_own_errors_have_openai_s_shape(plain_all: DroppedInStack) -> None:
    body = b'{"model":"qwen","messages":[{"role":"user","content":"' + b"x" * (65 << 20) + b'"}]}'
    refused = httpx.post(f"{plain_all.url}{CHAT}", content=body, headers=JSON, timeout=30, trust_env=False)
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == 413


def test_own_routes_choose_the_pool_by_path_and_by_header(strict_dns: DroppedInStack) -> None:
    before = strict_dns.fail_opens()
    for model, path, headers, pool in BY_OWN_ROUTES:
        _, home = twenty_turns(strict_dns, model, path, **headers)
        assert home.startswith(pool)
    assert strict_dns.fail_opens() == before
    assert strict_dns.metric("homing_decisions_total", reason="home") >= 19 * len(BY_OWN_ROUTES)


BY_OWN_ROUTES: Sequence[tuple[str, str, dict[str, str], str]] = (
    ("qwen-model", "/qwen" + CHAT, {}, "qwen-"),
    ("llama-model", "/llama" + CHAT, {}, "llama-"),
    ("llama-model", CHAT, {"x_model": "llama"}, "llama-"),
)


def test_own_routes_keep_what_they_answer_themselves(strict_dns: DroppedInStack) -> None:
    answer = chat(strict_dns, "qwen-model")
    assert (answer.status_code, answer.text) == (404, "no such model\n")


@pytest.mark.parametrize("model", [None, "nope", "llama-model"])
def test_where_route_and_model_disagree_the_route_rules_and_the_picker_decides(
    strict_dns: DroppedInStack, model: str | None
) -> None:
    """Envoy tells the picker which cluster the route leads to."""
    session = f"s-disagree-{model}"
    answers = [chat(strict_dns, model, session=session, path="/qwen" + CHAT) for _ in range(8)]
    (home,) = {answer.headers["x-homing-replica"] for answer in answers}
    assert home.startswith("qwen-")
    assert [answer.headers["x-homing-decision"] for answer in answers] == ["hash", *["home"] * 7]


@pytest.mark.parametrize(("model", "path"), [("qwen-model", "/qwen" + CHAT), ("llama-model", "/llama" + CHAT)])
def test_replicas_by_name_keep_their_sessions_without_pickers(
    strict_dns: DroppedInStack, model: str, path: str
) -> None:
    sessions_stay_without_pickers(strict_dns, model, path)


UPGRADE = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"


class RealtimeReplica(socketserver.StreamRequestHandler):
    """Answers probes, and WebSockets by an echo."""

    def handle(self) -> None:
        while first := self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            if first.startswith(b"GET /v1/realtime "):
                self.wfile.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
                )
                while data := self.request.recv(100):
                    self.wfile.write(data)
            else:
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def test_web_sockets_pass(short_directory: Path) -> None:
    """Nothing waits for a body that never ends, and the session id comes back with the 101."""
    with contextlib.ExitStack() as held:
        servers = [
            held.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), RealtimeReplica)) for _ in range(3)
        ]
        for server in servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            held.callback(server.shutdown)
        pool = replace(PLAIN.pools[0], ports=tuple(server.server_address[1] for server in servers))
        stranger = replace(PLAIN, pools=(pool,))
        stack = held.enter_context(dropped_in(short_directory / "realtime", stranger, PLAIN.minimal()))
        with socket.create_connection(("127.0.0.1", stack.data), timeout=5) as client:
            client.sendall(b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\n" + UPGRADE)
            head = client.recv(4096)
            assert head.startswith(b"HTTP/1.1 101 ")
            assert b"x-session-id: " in head
            client.sendall(b"\x81\x02hi")
            assert client.recv(100) == b"\x81\x02hi"


def test_long_bodies_pass(plain: DroppedInStack) -> None:
    content = json.dumps({"model": "qwen", "messages": [{"role": "user", "content": "word " * 1_600_000}]}).encode()
    answer = httpx.post(f"{plain.url}{CHAT}", content=content, headers=JSON, timeout=30, trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["x-homing-decision"] == "new"
