"""compose/healthcheck, which every container is watched by."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from compose.engine import FILES
from e2e.stack import free_ports

from tests.http_serving import answering

ASKED, UPTIME = "cluster.homing-pickers.membership_healthy", "server.uptime"


class Served(BaseHTTPRequestHandler):
    stats = ""

    def do_GET(self) -> None:
        body = type(self).stats.encode() if self.path == f"/stats?filter=^({UPTIME}|{ASKED})$" else b""
        self.send_response(404 if self.path == "/missing" else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def place() -> Iterator[str]:
    with answering(HTTPServer(("127.0.0.1", 0), Served)) as address:
        yield address


def said(*arguments: str) -> tuple[int, str]:
    argv = (str(FILES / "healthcheck"), *arguments)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stderr.strip()


def test_what_is_answered_with_200_is_healthy_and_nothing_else(place: str) -> None:
    (nobody,) = free_ports(1)
    assert said(f"{place}/") == (0, "")
    assert said(f"{place}/missing") == (1, f"{place}/missing: HTTP/1.0 404 Not Found")
    assert said(f"127.0.0.1:{nobody}/") == (1, f"127.0.0.1:{nobody}/: [Errno 111] Connection refused")


@pytest.mark.parametrize(
    ("stats", "healthy"),
    [
        pytest.param(f"{ASKED}: 0\n{UPTIME}: 0\n", False, id="has just begun"),
        pytest.param(f"{ASKED}: 1\n{UPTIME}: 0\n", True, id="asks one"),
        pytest.param(f"{ASKED}: 0\n{UPTIME}: 20\n", True, id="has waited long enough: it serves alone"),
        pytest.param(f"{UPTIME}: 0\n", True, id="has none to ask"),
    ],
)
def test_an_envoy_that_has_just_begun_is_healthy_once_it_asks_a_picker(
    place: str, monkeypatch: pytest.MonkeyPatch, stats: str, healthy: bool
) -> None:
    monkeypatch.setattr(Served, "stats", stats)
    assert said(f"{place}/", place) == ((0, "") if healthy else (1, f"{place}: Envoy asks no picker yet"))
    assert said(f"{place}/missing", place)[0] == 1
