"""Simulated replicas, all in one process: `python -m bench.routing.replicas SPEC` with a Spec as JSON.

One more port tells how each fares (`GET /sample`), and takes the faults of `homing sim --admin` for each
(`/ID/restart`, `/ID/speed`).
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from bench.routing.fleet import Member
from bench.routing.work import MODEL
from homing.sim.admin import build_admin
from homing.sim.engines import EngineOptions
from homing.sim.kv_events import KvEventsConfig
from homing.sim.server import Options, Process, Server, bind
from homing.sim.serving import json_response

PRESET = "a100-llama-8b"
PROBE_S = 0.02


class Simulated(msgspec.Struct, frozen=True):
    """One of them; `slowdown` is how many times longer everything takes there."""

    member: Member
    slowdown: float = 1.0


class Spec(msgspec.Struct, frozen=True):
    """`speed` is against the preset's GPU, `time_scale` simulated seconds in a real one."""

    admin_port: int
    replicas: list[Simulated]
    speed: float
    time_scale: float
    stream_interval: int


class Load(msgspec.Struct, frozen=True):
    """Of one replica; `queried` and `found` are prompt tokens since its start."""

    running: int
    waiting: int
    queried: int
    found: int


class Sample(msgspec.Struct, frozen=True):
    """`late_ms`: how late this process's loop woke since the last sample, at the worst and at the 99th percentile."""

    loads: dict[str, Load]
    worst_late_ms: float
    p99_late_ms: float
    cpu_s: float


class Lateness:
    """How late the loop wakes, which is how late a token may be."""

    def __init__(self) -> None:
        self._seen: list[float] = []

    async def probe(self) -> None:
        while True:
            wanted = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._seen.append((time.perf_counter() - wanted) * 1e3)

    def take(self) -> tuple[float, float]:
        """The worst and the 99th percentile since the last call, in ms."""
        seen, self._seen = sorted(self._seen), []
        return (seen[-1], seen[int(0.99 * (len(seen) - 1))]) if seen else (0.0, 0.0)


def _options(spec: Spec, one: Simulated) -> Options:
    events = KvEventsConfig()
    if one.member.kv_events:
        endpoint, replay = (e.replace("127.0.0.1", "*") for e in (one.member.kv_events, one.member.kv_replay))
        events = KvEventsConfig(enable_kv_cache_events=True, endpoint=endpoint, replay_endpoint=replay)
    engine = EngineOptions(preset=PRESET, speed=spec.speed)
    scale, interval = spec.time_scale, spec.stream_interval
    return Options(one.member.id, MODEL, engine, time_scale=scale, stream_interval=interval, kv_events=events)


def _load(process: Process) -> Load:
    engine = process.engine
    counters = engine.counters
    return Load(engine.running, engine.waiting, counters.prefix_queries, counters.prefix_hits)


async def _serve(spec: Spec) -> None:
    processes = {one.member.id: Process(_options(spec, one)) for one in spec.replicas}
    for one in spec.replicas:
        processes[one.member.id].slow_down(one.slowdown)
    lateness = Lateness()

    async def sample(_: Request) -> Response:
        worst, p99 = lateness.take()
        return json_response(Sample({i: _load(p) for i, p in processes.items()}, worst, p99, time.process_time()))

    mounts = [Mount(f"/{name}", build_admin(process)) for name, process in processes.items()]
    admin = Server(Starlette(routes=[Route("/sample", sample), *mounts]))

    def stop() -> None:
        admin.should_exit = True
        for process in processes.values():
            process.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    probing = asyncio.create_task(lateness.probe())
    async with asyncio.TaskGroup() as tasks:
        for one in spec.replicas:
            tasks.create_task(processes[one.member.id].run(bind("127.0.0.1", one.member.port)))
        await admin.serve([bind("127.0.0.1", spec.admin_port)])
    probing.cancel()


if __name__ == "__main__":
    uvloop.run(_serve(msgspec.json.decode(sys.argv[1], type=Spec)))
