"""core.hashing's ketama and a real NGINX send the same keys to the same servers, and past a server that is down."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from e2e.stack import Processes, free_ports, until

from homing.core.hashing import Ketama

pytestmark = pytest.mark.e2e

KEYS = [f"tenant-{i % 7}/session-{i:x}" for i in range(10_000)]


@dataclass(frozen=True)
class Case:
    """An upstream. Servers that are `down` stay among the hash's points."""

    name: str
    weights: tuple[int, ...]
    down: frozenset[int] = frozenset()


CASES = (
    Case("equal", (1,) * 8),
    Case("weights", (1, 2, 3, 7, 1, 5, 2, 2)),
    Case("down", (1, 2, 3, 7, 1, 5, 2, 2), frozenset({3})),
)


def configuration(directory: Path, data: int, servers: list[int]) -> str:
    def upstream(case: Case) -> str:
        lines = [
            f"server 127.0.0.1:{port} weight={weight}{' down' if i in case.down else ''};"
            for i, (port, weight) in enumerate(zip(servers, case.weights, strict=True))
        ]
        return f"upstream {case.name} {{ hash $http_x_session_id consistent; {' '.join(lines)} keepalive 16; }}"

    fronts = "".join(f"location /{case.name} {{ proxy_pass http://{case.name}; }}\n" for case in CASES)
    backs = "".join(
        f"server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000; location / {{ return 200 '{i:03}'; }} }}\n"
        for i, port in enumerate(servers)
    )
    temporary = " ".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
daemon off; worker_processes 1; pid {directory}/nginx.pid; error_log {directory}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; {temporary} keepalive_requests 1000000; proxy_http_version 1.1; proxy_set_header Connection "";
  {"".join(map(upstream, CASES))}
  server {{ listen 127.0.0.1:{data}; location = /ready {{ return 200; }} {fronts} }}
  {backs}
}}
"""


@contextlib.contextmanager
def nginx(directory: Path) -> Iterator[tuple[int, list[int]]]:
    """The port of an NGINX with all cases, and its servers' ports."""
    data, *servers = free_ports(9)
    file = directory / "nginx.conf"
    file.write_text(configuration(directory, data, servers))
    processes = Processes(directory)
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
    assert program is not None
    try:
        processes.start("nginx", (program, "-c", str(file), "-e", str(directory / "nginx-error.log")))
        until(lambda: answers(data), what="NGINX")
        yield data, servers
    finally:
        processes.stop_all()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False).is_success
    except httpx.HTTPError:
        return False


async def served(port: int, case: Case) -> list[int]:
    """Which server each key went to. A few connections, all requests of each at once."""
    slices = [KEYS[i : i + 1000] for i in range(0, len(KEYS), 1000)]
    return [index for found in await asyncio.gather(*(ask(port, case, keys) for keys in slices)) for index in found]


async def ask(port: int, case: Case, keys: list[str]) -> list[int]:
    found = []
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /{case.name} HTTP/1.1\r\nhost: x\r\nx-session-id: "
        writer.write("".join(f"{head}{key}\r\n\r\n" for key in keys).encode())
        for _ in keys:
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert answer.startswith("HTTP/1.1 200"), answer
            found.append(int(await reader.readexactly(3)))
    writer.close()
    return found


async def test_every_key_has_the_server_that_nginx_picks(short_directory: Path) -> None:
    with nginx(short_directory) as (port, servers):
        for case in CASES:
            hosts = [(f"127.0.0.1:{p}", weight) for p, weight in zip(servers, case.weights, strict=True)]
            table = Ketama(hosts)
            ours = [next(host for host in table.walk(key.encode()) if host not in case.down) for key in KEYS]
            assert await served(port, case) == ours, case.name
            assert set(ours) == set(range(8)) - case.down
