"""How fast a change reaches many Envoys: one pool of 1,000 replicas, 100 streams, state of the world and delta.

    python -m bench.xds [--streams 100] [--replicas 1000] [--changes 10] [--json FILE]

The clients are streams of one other process; they parse every response and acknowledge it, as Envoy does. A change
(one replica fails its probes) is timed from the fleet that changed to the last acknowledgement, the making of the new
configuration included. Then the server idles for five seconds, and its processor time is taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from homing.control import resources
from homing.control.ads import Answer
from homing.control.ads_server import AdsServer, Stream
from homing.control.envoy_config import Wiring
from homing.control.snapshot import CDS, EDS, LDS, RDS
from homing.core.config import Address, parse
from homing.core.fleet import HealthChanged

POOL = "p"
NAMES = {CDS: (), EDS: (POOL,), LDS: (), RDS: ("homing",)}
WAIT_S = 30.0
IDLE_S = 5.0
OPTIONS = (("grpc.max_receive_message_length", 64 << 20),)


@dataclass(frozen=True, slots=True)
class Result:
    mode: str
    streams: int
    replicas: int
    changes: int
    median_s: float
    worst_s: float
    making_s: float  # of which the configuration was being made
    idle_cpu: float  # share of one processor, while nothing changes


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--streams", type=int, default=100)
    arguments.add_argument("--replicas", type=int, default=1000)
    arguments.add_argument("--changes", type=int, default=10)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    sizes = (given.streams, given.replicas, given.changes)
    results = [asyncio.run(measure(mode, *sizes)) for mode in ("state of the world", "delta")]
    sys.stdout.write("\n".join(table(results)) + "\n")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def table(results: list[Result]) -> list[str]:
    """Markdown."""
    head = "| mode | streams | replicas | median | worst | of which making | idle CPU |"
    rows = [
        f"| {r.mode} | {r.streams} | {r.replicas} | {r.median_s:.2f} s | {r.worst_s:.2f} s | {r.making_s:.2f} s"
        f" | {r.idle_cpu:.1%} |"
        for r in results
    ]
    return [head, "|---|---|---|---|---|---|---|", *rows]


async def measure(mode: str, streams: int, replicas: int, changes: int, idle_s: float = IDLE_S) -> Result:
    listed = ", ".join(f"{{id: r{i}, address: '10.0.{i // 250}.{i % 250 + 1}:8000'}}" for i in range(replicas))
    config = parse(f"pools: {{{POOL}: {{replicas: [{listed}]}}}}", "bench")
    fleet, wiring, server = config.fleet(), Wiring(("unix:/run/picker.sock",)), AdsServer()
    server.publish(resources.snapshot(config, fleet, wiring))
    port = await server.start(Address("127.0.0.1", 0))
    clients = multiprocessing.get_context("spawn").Process(target=run_clients, args=(port, streams, mode == "delta"))
    clients.start()
    try:
        await connected(server, streams)
        totals, makings = [], []
        for i in range(changes):
            fleet = fleet.apply(HealthChanged(POOL, f"r{i % replicas}", healthy=True))
            began = time.perf_counter()
            snapshot = await asyncio.to_thread(resources.snapshot, config, fleet, wiring)
            makings.append(time.perf_counter() - began)
            server.publish(snapshot)
            if await server.wait_acked(snapshot.version, WAIT_S) is not Answer.ACKED:
                raise SystemExit("a client did not acknowledge in time")
            totals.append(time.perf_counter() - began)
        before = _cpu_s()
        await asyncio.sleep(idle_s)
        idle = (_cpu_s() - before) / idle_s if idle_s else 0.0
    finally:
        clients.terminate()
        clients.join()
        await server.stop()
    median, making = statistics.median(totals), statistics.median(makings)
    return Result(mode, streams, replicas, changes, median, max(totals), making, idle)


async def connected(server: AdsServer, streams: int) -> None:
    """Returns when every stream has acknowledged all that there was at the beginning."""
    async with asyncio.timeout(WAIT_S):
        while sum(map(_settled, server.streams)) < streams:  # noqa: ASYNC110 (they are in another process)
            await asyncio.sleep(0.05)


def _settled(stream: Stream) -> bool:
    return len(stream.types) == len(NAMES) and stream.answer(0) is Answer.ACKED


def run_clients(port: int, streams: int, delta: bool) -> None:
    """In a process of its own, until it is ended."""
    asyncio.run(_clients(port, streams, delta))


async def _clients(port: int, streams: int, delta: bool) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(streams):
            tasks.create_task(_client(port, delta))


async def _client(port: int, delta: bool) -> None:
    """One connection, as each Envoy has its own."""
    own = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own) as channel:
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        call = stub.DeltaAggregatedResources() if delta else stub.StreamAggregatedResources()
        for type_url, names in NAMES.items():
            await call.write(
                DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names)
                if delta
                else DiscoveryRequest(type_url=type_url, resource_names=names)
            )
        while (response := await call.read()) is not grpc.aio.EOF:
            if delta:
                await call.write(DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce))
            else:
                answer = DiscoveryRequest(type_url=response.type_url, resource_names=NAMES[response.type_url])
                answer.version_info, answer.response_nonce = response.version_info, response.nonce
                await call.write(answer)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
