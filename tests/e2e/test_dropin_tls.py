"""The drop-in at a TLS edge with several virtual hosts: the models' gets homing, all others stay as they were."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from e2e.stack import replica_ids, until
from e2e.strangers_stack import TLS, DroppedInStack, dropped_in, write_certificate

pytestmark = pytest.mark.e2e

BY_MODEL = (*TLS.minimal(), "http-connection-manager", "listener", "routes")
TIMINGS = re.compile(rb"(?mi)^(date|x-envoy-upstream-service-time): .*\r\n")
KNOWN = "chat-model, small-model"
CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hello"}]


class Shop(BaseHTTPRequestHandler):
    """An application that says what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = str(self.headers).encode()
        self.send_response(404 if self.path == "/nothing" else 200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-cart", "7")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class Edge:
    stack: DroppedInStack
    context: ssl.SSLContext

    def ask(self, host: str, path: str = "/", body: bytes | None = None, *headers: str) -> bytes:
        """The whole answer as it came, on a connection of its own."""
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"host: {host}", "connection: close", *headers]
        if body is not None:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        with (
            socket.create_connection(("127.0.0.1", self.stack.data), timeout=10) as plain,
            self.context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
            return b"".join(iter(lambda: secure.recv(65536), b""))

    def chat(self, model: str | None, *headers: str) -> tuple[int, dict[str, list[str]], dict[str, object]]:
        """Status, headers and body of a chat request to the models' virtual host."""
        body = {"messages": USER, "max_tokens": 4} | ({"model": model} if model else {})
        return parsed(self.ask("api.example.test", CHAT, json.dumps(body).encode(), *headers))

    def access_log(self) -> list[dict[str, object]]:
        text = (self.stack.processes.directory / "access.log").read_text()
        return [json.loads(line) for line in text.splitlines()]


def parsed(answer: bytes) -> tuple[int, dict[str, list[str]], dict[str, object]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers: dict[str, list[str]] = {}
    for name, value in (line.split(": ", 1) for line in lines):
        headers.setdefault(name, []).append(value)
    return int(first.split()[1]), headers, json.loads(body) if body.startswith(b"{") else {}


@pytest.fixture(scope="module")
def edge(short_directory: Path) -> Iterator[Edge]:
    directory = short_directory / "certificates"
    directory.mkdir()
    authority = write_certificate(directory)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop:
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        more = {"SHOP": shop.server_port, "CERT": directory / "cert.pem", "KEY": directory / "key.pem"}
        with dropped_in(short_directory / "tls", TLS, BY_MODEL, **more) as stack:
            yield Edge(stack, context)
        shop.shutdown()


FORGED = (
    "x-homing-decision: home",
    "x-homing-ref: 00",
    "x-session-id: s1",
    "x-gateway-destination-endpoint: 127.0.0.1:1",
)
UNRELATED: dict[str, tuple[str, str, bytes | None, tuple[str, ...]]] = {
    "a page": ("shop.example.test", "/page", None, ()),
    "its own 404": ("shop.example.test", "/nothing", None, ()),
    "an order": ("shop.example.test", "/order", b'{"model":"chat-model"}', ()),
    "bad JSON": ("shop.example.test", "/order", b'{"model":', ()),
    "another site's script": ("shop.example.test", "/page", None, ("origin: https://www.example.test",)),
    "the edge's error page": ("shop.example.test", "/down", None, ()),
    "our headers, forged": ("shop.example.test", "/page", None, FORGED),
    "our headers, forged, and an error": ("shop.example.test", "/down", None, FORGED),
    "answered by Envoy": ("status.example.test", "/", None, ()),
    "not found at the edge": ("status.example.test", "/nothing", None, FORGED),
    "a virtual host that is not there": ("other.example.test", "/", None, ()),
}


def test_unrelated_virtual_hosts_are_untouched(edge: Edge) -> None:
    """The same bytes with homing and without, times aside, and the same lines in the access log."""

    def seen() -> tuple[dict[str, bytes], list[dict[str, object]]]:
        known = len(edge.access_log())
        answers = {name: TIMINGS.sub(b"", edge.ask(*ask[:3], *ask[3])) for name, ask in UNRELATED.items()}
        edge.stack.restart_envoy()  # and what it held back is in its log
        return answers, edge.access_log()[known:]

    decisions = edge.stack.metric("homing_decisions_total")
    with_homing = seen()
    assert edge.stack.metric("homing_decisions_total") == decisions
    pasted = edge.stack.envoy_file.read_text()
    edge.stack.envoy_file.write_text(edge.stack.original())
    edge.stack.restart_envoy()
    without = seen()
    edge.stack.envoy_file.write_text(pasted)
    edge.stack.restart_envoy()
    edge.stack.until_envoy_ready()
    assert with_homing == without
    answers, log = without
    assert len(log) == len(UNRELATED)
    assert b"<h1>Sorry</h1><p>503</p>" in answers["our headers, forged, and an error"]
    assert b"access-control-allow-origin: https://www.example.test" in answers["another site's script"]
    assert b"x-homing" not in answers["a page"]


def test_sessions_come_home(edge: Edge) -> None:
    before = edge.stack.fail_opens()
    status, headers, _ = edge.chat("chat-model")
    assert status == 200
    (session,), (home,) = headers["x-session-id"], headers["x-homing-replica"]
    for _ in range(19):
        status, headers, _ = edge.chat("chat-model", f"x-session-id: {session}")
        assert (status, headers["x-homing-replica"], headers["x-session-id"]) == (200, [home], [session])
    assert headers["x-homing-decision"] == ["home"]
    assert edge.stack.fail_opens() == before


def test_what_the_virtual_host_and_the_edge_add_stays(edge: Edge) -> None:
    _, headers, _ = edge.chat("chat-model")
    assert headers["strict-transport-security"] == ["max-age=31536000"]
    assert headers["x-served-by"] == ["edge"]
    assert headers["server"] == ["edge"]
    answer = edge.ask("api.example.test", "/")
    assert answer.startswith(b"HTTP/1.1 301 ")
    assert b"location: https://docs.example.test/" in answer


@pytest.mark.parametrize(("model", "pool"), [("chat-model", "vllm_chat"), ("small-model", "vllm_embed")])
def test_the_model_chooses_the_pool(edge: Edge, model: str, pool: str) -> None:
    status, headers, body = edge.chat(model)
    assert (status, body["model"]) == (200, model)
    assert headers["x-homing-replica"][0].startswith(pool)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (
            b'{"model":"nope","messages":[]}',
            404,
            f"The model nope does not exist. Known models: {KNOWN}.",
        ),
        (b'{"messages":[]}', 400, f"The request names no model, and there are several: {KNOWN}."),
        (b"{", 400, "The body is not valid JSON."),
    ],
)
def test_errors_have_openai_s_shape(edge: Edge, body: bytes, status: int, message: str) -> None:
    found, _, answer = parsed(edge.ask("api.example.test", CHAT, body))
    assert found == status
    error = answer["error"]
    assert isinstance(error, dict)
    assert (error["message"], error["code"]) == (message, status)


def test_with_its_pool_down_the_models_error_is_json_and_the_shop_s_is_its_page(edge: Edge) -> None:
    """homing's error mappers stand before the edge's, and take only the models' requests."""
    (replica,) = replica_ids(TLS.pools[1])
    edge.stack.processes.kill(replica)
    until(lambda: edge.stack.healthy_hosts("vllm_embed") == 0, what="Envoy to see the dead replica")
    status, _, answer = edge.chat("small-model")
    error = answer["error"]
    assert isinstance(error, dict)
    assert (status, error["type"]) == (503, "ServiceUnavailable")
    assert b"<h1>Sorry</h1>" in edge.ask("shop.example.test", "/down")
    edge.stack.start_replica(TLS.pools[1], replica)
    until(lambda: edge.stack.healthy_hosts("vllm_embed") == 1, what="the replica to be back")


def test_a_long_body_passes_the_edge_s_buffer_of_32_kib(edge: Edge) -> None:
    content = {"model": "chat-model", "messages": [{"role": "user", "content": "word " * 1_600_000}]}
    status, headers, _ = parsed(edge.ask("api.example.test", CHAT, json.dumps(content).encode()))
    assert (status, headers["x-homing-decision"]) == (200, ["new"])


def test_without_pickers_sessions_stay_home(edge: Edge) -> None:
    begun = [edge.chat("chat-model")[1] for _ in range(10)]
    edge.stack.processes.kill("picker")
    edge.stack.processes.kill("standby")
    for headers in begun:
        _, again, _ = edge.chat("chat-model", f"x-session-id: {headers['x-session-id'][0]}")
        assert again["x-homing-replica"] == headers["x-homing-replica"]
        assert again["x-homing-decision"] == ["fallback"]
