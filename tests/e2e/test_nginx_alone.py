"""NGINX with the rendered configuration and no process of homing's: affinity, faults, rude clients, the log."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.client import Answer, ask, chat_body, many, request
from e2e.nginx_stack import SECRET, NginxStack, nginx_stack
from e2e.stack import HOMING, Processes, SimulatedPool, free_ports, replica_ids, until

from homing.cli.config_file import load
from homing.cli.explain_nginx import choices
from homing.core.hashing import Ketama

pytestmark = pytest.mark.e2e

POOL = SimulatedPool("pool", "a-model", 3)
MODEL = "a-model"


@pytest.fixture(scope="module", params=[True, False], ids=["njs", "hash only"])
def nginx(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxStack]:
    with nginx_stack(tmp_path_factory.mktemp("n"), (POOL,), njs=request.param) as stack:
        yield stack


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[NginxStack]:
    """For tests that break it."""
    slow = SimulatedPool("pool", MODEL, 3, sim_flags=("--ttft-ms", "800", "--itl-ms", "100"))
    with nginx_stack(tmp_path / "n", (slow,)) as stack:
        yield stack


async def turns(stack: NginxStack, sessions: list[str | None]) -> list[Answer]:
    messages = [request(chat_body(MODEL), {"x-session-id": s} if s else None) for s in sessions]
    answers = await many(stack.port, messages, 40)
    assert [a.status for a in answers] == [200] * len(sessions)
    return answers


def replicas(answers: list[Answer]) -> list[str]:
    return [a.headers["x-homing-replica"] for a in answers]


async def test_sessions_live_where_explain_says(nginx: NginxStack) -> None:
    ids = [f"session-{i}" for i in range(100)]
    file = load(str(nginx.directory / "homing.yaml"))
    explained = [choice.choice for i in ids for choice in choices(file, i, "", MODEL)]
    assert replicas(await turns(nginx, [*ids])) == explained


async def test_a_client_without_an_id_gets_one_that_sticks(nginx: NginxStack) -> None:
    first = await turns(nginx, [None] * 30)
    given = [a.headers["x-session-id"] for a in first]
    assert len(set(given)) == 30
    second = await turns(nginx, [*given])
    assert [a.headers["x-session-id"] for a in second] == given
    assert replicas(second) == replicas(first)
    assert set(replicas(first)) == set(replica_ids(POOL))


async def test_tokens_arrive_as_they_are_made(fresh: NginxStack) -> None:
    answer = await ask(fresh.port, request(chat_body(MODEL, stream=True, max_tokens=8)))
    assert answer.complete
    times = [at for at, _ in answer.chunks]
    assert times[-1] - times[0] > 0.3  # 8 tokens, 100 ms apart
    assert len(answer.chunks) >= 8


async def test_a_dead_replica_s_sessions_go_on_and_all_others_stay(fresh: NginxStack) -> None:
    ids = [f"session-{i}" for i in range(40)]
    before = replicas(await turns(fresh, [*ids]))
    fresh.processes.kill("pool-1")
    after = replicas(await turns(fresh, [*ids]))
    assert "pool-1" not in after
    assert [r for r, b in zip(after, before, strict=True) if b != "pool-1"] == [b for b in before if b != "pool-1"]


async def test_a_request_that_a_model_may_have_begun_is_not_sent_twice(fresh: NginxStack) -> None:
    asked = asyncio.create_task(ask(fresh.port, request(chat_body(MODEL), {"x-session-id": "s"})))
    home = "pool-" + str(Ketama([(f"127.0.0.1:{p}", 1) for p in fresh.replica_ports.values()]).owner(b"/s"))
    await asyncio.sleep(0.4)  # it waits for its first token
    fresh.processes.kill(home)
    answer = await asked
    assert (answer.status, answer.headers["content-type"]) == (503, "application/json")
    assert json.loads(answer.body)["error"]["message"] == "No replica could be reached."
    assert answer.headers["x-session-id"] == "s"
    until(lambda: any(line["status"] == 503 for line in fresh.log()), 5, "the log")
    tried = [line["upstream"] for line in fresh.log() if line["status"] == 503]
    assert tried == [f"127.0.0.1:{fresh.replica_ports[home]}"]


async def dies(how: str, seen: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A replica that has read a request, and then goes: a model may have begun."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.partition(b"\r\n")[0])
        length = re.search(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length[1]) if length else 0)
        if how == "in the answer":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:\r\n")
        elif how == "in the headers":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-")
        await writer.drain()
        await asyncio.sleep(0.05)
    if how == "reset":
        writer.transport.abort()
    writer.close()


@pytest.mark.parametrize("how", ["closed", "reset", "in the headers", "in the answer"])
async def test_no_replica_gets_what_another_has_read(tmp_path: Path, how: str) -> None:
    seen: list[bytes] = []
    servers = [await asyncio.start_server(functools.partial(dies, how, seen), "127.0.0.1", 0) for _ in range(3)]
    pool = SimulatedPool("pool", MODEL, 3, ports=tuple(server.sockets[0].getsockname()[1] for server in servers))
    stack = NginxStack(
        Processes(tmp_path), (pool,), free_ports(1)[0], dict(zip(replica_ids(pool), pool.ports, strict=True))
    )
    try:
        await asyncio.to_thread(stack.start_nginx)
        answer = await ask(stack.port, request(chat_body(MODEL), {"x-session-id": "s"}))
        assert (len(seen), answer.complete) == (1, how != "in the answer"), "read once, by one of three"
        assert answer.status == (200 if how == "in the answer" else 503)
    finally:
        await asyncio.to_thread(stack.processes.stop_all)
        for server in servers:
            server.close()


async def test_a_body_that_is_chunked_into_more_than_the_buffer_is_refused_by_name(nginx: NginxStack) -> None:
    if not nginx.njs:  # it passes: nobody looks at it
        return
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await ask(nginx.port, head + (b"1;" + b"e" * 60_000 + b"\r\n \r\n") * 1_200 + b"0\r\n\r\n")
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, 413)


async def test_http_1_0_and_chunked_and_pipelined_requests(nginx: NginxStack) -> None:
    body = chat_body(MODEL)
    old = request(body).replace(b"HTTP/1.1", b"HTTP/1.0")
    reader, writer = await asyncio.open_connection("127.0.0.1", nginx.port)
    writer.write(old)
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
    writer.close()
    lines = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n"
    halves = [body[:20], body[20:]]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(half), half) for half in halves)
    chunked = await ask(nginx.port, lines + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert (chunked.status, chunked.complete) == (200, True)
    reader, writer = await asyncio.open_connection("127.0.0.1", nginx.port)
    last = request(body, {"connection": "close"})
    writer.write(request(body) + request(body) + last)
    answers = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert answers.count(b"HTTP/1.1 200") == 3


async def test_bodies_up_to_the_limit_pass_and_larger_ones_are_refused_by_name(nginx: NginxStack) -> None:
    message = [{"role": "user", "content": "x " * 4_000_000}]
    large = json.dumps({"messages": message, "model": MODEL, "max_tokens": 1}).encode()
    passed = await ask(nginx.port, request(large))
    assert passed.status == 200
    assert passed.headers["x-homing-replica"] in replica_ids(POOL)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        refused = await client.post(
            f"{nginx.url}/v1/chat/completions", content=b"{" + b" " * (65 << 20) + b"}", headers={"expect": ""}
        )
    assert refused.status_code == 413
    assert refused.json()["error"] == {
        "message": "The request is too large.", "type": "BadRequestError", "param": None, "code": 413
    }  # fmt: skip


async def test_a_client_that_leaves_ends_its_request_at_the_replica(fresh: NginxStack) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", fresh.port)
    writer.write(request(chat_body(MODEL, stream=True, max_tokens=200)))
    await reader.readuntil(b"data:")
    assert running(fresh) == 1
    writer.close()
    await asyncio.to_thread(until, lambda: running(fresh) == 0, 5, "the replicas to be idle")


def running(stack: NginxStack) -> float:
    total = 0.0
    for port in stack.replica_ports.values():
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        total += sum(float(ln.split()[-1]) for ln in text.splitlines() if ln.startswith("vllm:num_requests_running"))
    return total


async def test_the_log_says_who_served_and_names_the_session_by_a_keyed_hash(nginx: NginxStack) -> None:
    answer = (await turns(nginx, ["logged-session"]))[0]

    def line() -> dict[str, object]:
        return nginx.log()[-1]

    until(lambda: line()["replica"] == answer.headers["x-homing-replica"] and line()["status"] == 200, 5, "the log")
    assert (line()["pool"], line()["decision"], line()["path"]) == ("pool", "hash", "/v1/chat/completions")
    expected = hmac.new(SECRET.encode(), b"/logged-session", hashlib.sha256).hexdigest()[:16]
    assert line()["session"] == (expected if nginx.njs else "")
    assert float(str(line()["first_byte_s"])) >= 0
    assert "logged-session" not in (nginx.directory / "access.log").read_text()


async def test_a_reload_under_load_loses_no_request(fresh: NginxStack) -> None:
    async def one(i: int) -> Answer:
        await asyncio.sleep(i * 0.01)
        return await ask(fresh.port, request(chat_body(MODEL, stream=True, max_tokens=3), {"x-session-id": f"s{i}"}))

    asked = [asyncio.create_task(one(i)) for i in range(100)]
    for _ in range(3):
        await asyncio.sleep(0.3)
        fresh.processes.signal("nginx", signal.SIGHUP)
    answers = await asyncio.gather(*asked)
    assert [(a.status, a.complete) for a in answers] == [(200, True)] * 100


def test_fragments_go_into_a_configuration_that_exists(tmp_path: Path) -> None:
    (port, *ports) = free_ports(3)
    file = tmp_path / "homing.yaml"
    replicas = [{"id": f"r{i}", "address": f"127.0.0.1:{p}"} for i, p in enumerate(ports)]
    file.write_text(json.dumps({"pools": {"vllm": {"replicas": replicas}}}))
    for flags in ((), ("--no-njs",)):
        out = tmp_path / ("plain" if flags else "njs")
        log = ("--access-log", str(tmp_path / "log"))
        command = (*HOMING, "render", "nginx", "-c", str(file), "--all-fragments", "--out", str(out), *log, *flags)
        subprocess.run(command, check=True)
        names = {"http.conf", "upstream-vllm.conf", "server.conf"} | (set() if flags else {"homing.js"})
        assert {p.name for p in out.iterdir()} == names
        module = "" if flags else "load_module /usr/lib/nginx/modules/ngx_http_js_module.so; env HOMING_SECRET;"
        (out / "nginx.conf").write_text(
            f"{module} pid {tmp_path}/pid; error_log stderr; events {{}}\n"
            f"http {{ include {out}/http.conf; include {out}/upstream-vllm.conf;\n"
            f"server {{ listen 127.0.0.1:{port}; location /mine {{ return 204; }} include {out}/server.conf; }} }}"
        )
        checked = subprocess.run(
            ("/usr/sbin/nginx", "-t", "-e", "stderr", "-c", str(out / "nginx.conf")), capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stderr
        assert "warn" not in checked.stderr, checked.stderr
