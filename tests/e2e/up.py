"""`homing up --demo` with a file of the test's own, and sessions that take turns through it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from e2e.client import Answer, again_and_again, chat_body, many, request
from e2e.stack import HOMING, Processes, until

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
    moved: int = 0  # turns that said so

    @property
    def file(self) -> Path:
        return self.processes.directory / "homing.yaml"

    def write(self, replicas: list[str], **more: object) -> None:
        settings = {
            **more,
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

    def homing(self, *arguments: str) -> str:
        """The output of a `homing` command that must succeed."""
        argv = (*HOMING, arguments[0], "-c", str(self.file), *arguments[1:])
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def state(self, replica: str) -> str:
        """Of the fleet's replica: `ready`, `draining`, ... ; empty when it is not there, or not healthy."""
        (pool,) = self.api_json("/api/fleet")["pools"]
        return next((r["state"] for r in pool["replicas"] if r["id"] == replica and r["healthy"]), "")

    def stat(self, name: str) -> int:
        text = httpx.get(f"http://127.0.0.1:{self.admin}/stats", params={"filter": f"^{name}$"}, trust_env=False).text
        return int(text.rpartition(": ")[2] or 0)

    async def turns(self) -> list[str]:
        """One turn of every session; who served each."""
        given = await many(self.listen, MESSAGES, 20)
        self.failed += [a for a in given if a.status != 200 or not a.complete]
        self.moved += sum(a.headers.get("x-homing-decision") == "moved" for a in given)
        return [a.headers.get("x-homing-replica", "") for a in given]

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Turns of all sessions all the time; not one may fail."""
        async with again_and_again(self.turns):
            yield
        assert [(a.status, a.body[:200]) for a in self.failed] == []


async def eventually(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(until, condition, what=what)
