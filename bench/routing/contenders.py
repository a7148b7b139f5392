"""Who is compared: the gateway, and how its clients name their sessions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.gateway.contenders import Processes
from bench.routing.fleet import Member
from bench.routing.gateways import Gateway, Homing, PlainEnvoy, Router
from bench.routing.load import Ids
from bench.routing.work import MODEL

Start = Callable[[Processes, Iterator[int], Sequence[Member]], Gateway]


@dataclass(frozen=True, slots=True)
class Contender:
    """`kv`: how its replicas tell their KV events, `ipc` or `tcp`; empty: they do not."""

    name: str
    start: Start
    ids: Ids = Ids.GIVEN
    kv: str = ""

    @property
    def ours(self) -> bool:
        return self.name.startswith("homing")


def contenders(peers: Path | None, placement: Mapping[str, float] | None = None) -> dict[str, Contender]:
    """By name. `peers`: the `bin` of their environment; None: without them."""
    found = [*_envoys(), *_homings(placement or {})]
    if peers is not None:
        found += _routers(peers)
    return {contender.name: contender for contender in found}


def _envoys() -> list[Contender]:
    def envoy(name: str, policy: str) -> Contender:
        return Contender(name, lambda processes, ports, members: PlainEnvoy.start(processes, ports, members, policy))

    return [
        envoy("round robin", "ROUND_ROBIN"),
        envoy("least request", "LEAST_REQUEST"),
        envoy("ring hash", "RING_HASH"),
        envoy("Maglev", "MAGLEV"),
    ]


def _homings(placement: Mapping[str, float]) -> list[Contender]:
    def homing(name: str, ids: Ids, kv: str = "", gateways: int = 1, pickers: int = 1) -> Contender:
        start = partial(Homing.start, gateways=gateways, pickers=pickers, placement=placement)
        return Contender(name, start, ids, kv)

    found = [
        homing("homing", Ids.GIVEN),
        homing("homing, ids issued", Ids.ISSUED),
        homing("homing, no ids", Ids.NONE),
        homing("homing, KV events", Ids.GIVEN, kv="ipc"),
        homing("homing, ids issued, KV events", Ids.ISSUED, kv="ipc"),
        homing("homing, no ids, KV events", Ids.NONE, kv="ipc"),
    ]
    if shutil.which("redis-server"):
        found += [
            homing("homing, 2 gateways of 2 pickers", Ids.GIVEN, gateways=2, pickers=2),
            homing("homing, 2 gateways of 2 pickers, KV events", Ids.GIVEN, kv="ipc", gateways=2, pickers=2),
        ]
    return found


def _routers(peers: Path) -> list[Contender]:
    vllm, sglang = (str(peers / "vllm-router"),), (str(peers / "sglang-router"), "launch")

    def router(name: str, program: Sequence[str], policy: str) -> Contender:
        start = partial(Router.start, program=program, policy=policy)
        return Contender(name, start)

    def kv_aware(processes: Processes, ports: Iterator[int], members: Sequence[Member]) -> Gateway:
        return Router.start(processes, ports, members, vllm, "kv_aware", _kv_flags(members))

    return [
        router("vllm-router, consistent_hash", vllm, "consistent_hash"),
        router("vllm-router, cache_aware", vllm, "cache_aware"),
        router("vllm-router, sticky_least_loaded", vllm, "sticky_least_loaded"),
        Contender("vllm-router, kv_aware", kv_aware, kv="tcp"),
        router("sglang-router, cache_aware", sglang, "cache_aware"),
    ]


def _kv_flags(members: Sequence[Member]) -> list[str]:
    flags = ["--kv-event-model", MODEL]
    for member in members:
        flags += ["--kv-event-source", f"{member.url}={member.kv_events}"]
        flags += ["--kv-event-replay-source", f"{member.url}={member.kv_replay}"]
    return flags
