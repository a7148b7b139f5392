"""`homing nginx-sync` beside real NGINX: the upstream follows the file, and no stream or request is lost by it."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.client import Answer, ask, chat_body, eventually, request
from e2e.nginx_stack import NJS_MODULE, NginxStack, nginx_stack
from e2e.stack import HOMING, SimulatedPool, answers, free_ports, until

pytestmark = pytest.mark.e2e

MODEL = "a-model"
POOL = SimulatedPool("pool", MODEL, 2, sim_flags=("--ttft-ms", "50", "--itl-ms", "50"))


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[NginxStack]:
    with nginx_stack(tmp_path / "n", (POOL,)) as stack:
        yield stack


def follow(stack: NginxStack) -> None:
    *arguments, directives = stack.command
    test = shlex.join([*arguments, directives, "-t"])
    reload = f"sh -c 'kill -HUP $(cat {stack.directory}/nginx.pid)'"
    paths = ("--out", str(stack.directory), "--access-log", str(stack.directory / "access.log"))
    flags = ("--njs-module", NJS_MODULE, "--test-command", test, "--reload-command", reload)
    command = (*HOMING, "nginx-sync", "-c", str(stack.directory / "homing.yaml"), *paths, *flags)
    stack.processes.start("sync", command)


async def served_by(stack: NginxStack, count: int = 30) -> set[str]:
    async def one(number: int) -> Answer:
        return await ask(stack.port, request(chat_body(MODEL, max_tokens=1), {"x-session-id": f"s{number}"}))

    asked = await asyncio.gather(*map(one, range(count)))
    assert [(a.status, a.complete) for a in asked] == [(200, True)] * count
    return {a.headers["x-homing-replica"] for a in asked}


async def test_a_replica_joins_and_leaves_without_a_lost_request(nginx: NginxStack) -> None:
    follow(nginx)
    file = nginx.directory / "homing.yaml"
    settings = json.loads(file.read_text())
    (port,) = free_ports(1)
    nginx.replica_ports["pool-2"] = port
    nginx.start_replica(POOL, "pool-2")
    await asyncio.to_thread(until, lambda: answers(f"http://127.0.0.1:{port}/health"), 20, "the new replica")
    stream = asyncio.create_task(
        ask(nginx.port, request(chat_body(MODEL, stream=True, max_tokens=60), {"x-session-id": "long"}))
    )
    replicas = settings["pools"]["pool"]["replicas"]
    replicas.append({"id": "pool-2", "address": f"127.0.0.1:{port}"})
    file.write_text(json.dumps(settings))

    async def joined() -> bool:
        return "pool-2" in await served_by(nginx)

    async def left() -> bool:
        return not await joined()

    await eventually(joined, "the new replica's share")
    del replicas[2]
    file.write_text(json.dumps(settings))
    await eventually(left, "the replica to leave")
    answer = await stream
    assert (answer.status, answer.complete) == (200, True)


async def test_what_nginx_refuses_is_taken_back(nginx: NginxStack) -> None:
    before = {path.name: path.read_text() for path in nginx.directory.iterdir() if path.suffix in (".conf", ".js")}
    (nginx.directory / "homing.yaml").write_text(
        json.dumps({"listen": f"127.0.0.1:{nginx.port}", "pools": {"pool": {"replicas": [
            {"id": "r", "address": "no-such-host.invalid:8000"}]}}})
    )  # fmt: skip
    follow(nginx)
    await asyncio.to_thread(until, lambda: "refused the files" in nginx.processes.log("sync"), 20, "the refusal")
    assert {name: (nginx.directory / name).read_text() for name in before} == before
    assert await served_by(nginx, 10) <= {"pool-0", "pool-1"}
