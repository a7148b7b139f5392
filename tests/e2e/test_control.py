"""What the control service does and what its absence does not do, through `homing up` and real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from e2e.client import Answer, chat_body, many, request
from e2e.stack import HOMING, Processes, answers, free_ports, until

pytestmark = pytest.mark.e2e

SESSIONS = [f"s{i}" for i in range(60)]
MESSAGES = [request(chat_body("m"), {"x-session-id": s}) for s in SESSIONS]


@dataclass
class Up:
    """`homing up --demo` with a file of the test's own."""

    processes: Processes
    listen: int
    admin: int
    xds: int
    api: int
    replicas: dict[str, int]
    failed: list[Answer] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.processes.directory / "homing.yaml"

    def write(self, replicas: list[str]) -> None:
        settings = {
            **{name: f"127.0.0.1:{getattr(self, name)}" for name in ("listen", "admin", "xds", "api")},
            "expose_decisions": True,
            "pools": {"p": {"served_name": "m", "replicas": [self._replica(r) for r in replicas]}},
        }
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(settings))
        temporary.rename(self.file)

    def _replica(self, replica_id: str) -> dict[str, str]:
        return {"id": replica_id, "address": f"127.0.0.1:{self.replicas[replica_id]}"}

    def child(self, word: str) -> int:
        """The process id of the child whose command line has `word` after the `homing` command."""
        parent = self.processes.running["up"].pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        found = [int(pid) for pid in children if f" {word} " in self._command(pid)]
        assert len(found) == 1, (word, found)
        return found[0]

    @staticmethod
    def _command(pid: str) -> str:
        return " ".join(Path(f"/proc/{pid}/cmdline").read_text().split("\0"))

    def api_json(self, path: str) -> dict[str, object]:
        return httpx.get(f"http://127.0.0.1:{self.api}{path}", trust_env=False, timeout=2).json()

    def stat(self, name: str) -> int:
        text = httpx.get(f"http://127.0.0.1:{self.admin}/stats", params={"filter": f"^{name}$"}, trust_env=False).text
        return int(text.rpartition(": ")[2] or 0)

    async def turns(self) -> list[str]:
        """One turn of every session; who served each."""
        given = await many(self.listen, MESSAGES, 20)
        self.failed += [a for a in given if a.status != 200]
        return [a.headers.get("x-homing-replica", "") for a in given]

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Turns of all sessions all the time; not one may fail."""

        async def load() -> None:
            while not ended.is_set():
                await self.turns()

        ended = asyncio.Event()
        loading = asyncio.create_task(load())
        try:
            yield
        finally:
            ended.set()
            await loading
        assert [(a.status, a.body[:200]) for a in self.failed] == []


@pytest.fixture
def up(short_directory: Path) -> Iterator[Up]:
    directory = Path(tempfile.mkdtemp(dir=short_directory))
    listen, admin, xds, api, *replicas = free_ports(8)
    running = Up(Processes(directory), listen, admin, xds, api, dict(zip("abcd", replicas, strict=True)))
    running.write(["a", "b", "c", "d"])
    running.processes.start("up", (*HOMING, "up", "--demo", "-c", str(running.file)))
    try:
        until(lambda: "Ctrl-C ends it" in running.processes.log("up"), what="homing up")
        yield running
    finally:
        running.processes.stop_all()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(until, condition, what=what)


async def test_traffic_goes_on_while_control_is_frozen_killed_and_back(up: Up) -> None:
    before = await up.turns()
    added = up.stat("listener_manager.listener_added")
    async with up.under_load():
        control = up.child("control")
        os.kill(control, signal.SIGSTOP)
        await asyncio.sleep(1)
        os.kill(control, signal.SIGKILL)
        await eventually(lambda: "control is ready again" in up.processes.log("up"), "control to be back")
        await eventually(lambda: answers(f"http://127.0.0.1:{up.api}/readyz"), "control to be ready")
        await eventually(lambda: bool(up.api_json("/api/xds")["streams"]), "Envoy to be connected again")
    assert await up.turns() == before
    # what Envoy had was not sent to it again
    assert up.stat("listener_manager.listener_added") == added
    assert up.stat("listener_manager.listener_modified") == 0


async def test_a_replica_that_leaves_and_comes_back_costs_no_request_and_moves_only_its_own_sessions(up: Up) -> None:
    before = await up.turns()
    async with up.under_load():
        up.write(["a", "b", "c"])
        await eventually(lambda: up.stat("cluster.p.membership_total") == 3, "Envoy to have three replicas")
        await asyncio.sleep(1)
        without = await up.turns()
        up.write(["a", "b", "c", "d"])
        await eventually(lambda: up.stat("cluster.p.membership_healthy") == 4, "Envoy to have four replicas")
        await asyncio.sleep(1)
    assert "d" in before
    assert "d" not in without
    assert [now for now, then in zip(without, before, strict=True) if then != "d"] == [r for r in before if r != "d"]
    # a scale-up moves no active session
    assert await up.turns() == without


async def test_a_replica_that_joins_gets_new_sessions(up: Up) -> None:
    up.write(["a", "b", "c"])
    await eventually(lambda: up.stat("cluster.p.membership_total") == 3, "Envoy to have three replicas")
    up.write(["a", "b", "c", "d"])
    await eventually(lambda: up.stat("cluster.p.membership_healthy") == 4, "Envoy to have four replicas")

    def joined() -> bool:
        fresh = asyncio.run(many(up.listen, [request(chat_body("m"))] * 20, 20))
        return "d" in {a.headers["x-homing-replica"] for a in fresh}

    await eventually(joined, "new sessions at the new replica")


async def test_a_bad_file_changes_nothing(up: Up) -> None:
    before = await up.turns()
    version = up.api_json("/api/fleet")["version"]
    up.file.write_text("pools: {}\n")
    await eventually(lambda: "homing.yaml" in up.processes.log("up"), "the problem to be said")
    assert await up.turns() == before
    assert up.api_json("/api/fleet")["version"] == version
    assert not up.failed
