"""What a picker without a control service runs: file, names and probes together."""

import asyncio
import time
from random import Random

from homing.control import watch as watch_module
from homing.control.membership import Membership
from homing.control.proving import Proving
from homing.control.reload import load
from homing.control.watch import FleetWatch


async def test_calls_back_first_when_all_are_probed_and_then_for_each_change(
    tmp_path, homing_yaml, replicas, background, until
):
    path = tmp_path / "homing.yaml"
    path.write_text(homing_yaml(replicas[0].address, replicas[1].address))
    replicas[1].mood = "sick"
    calls = []
    watch = FleetWatch(path, Membership(load(path)), Random(1))
    background(watch.run(lambda config, fleet: calls.append([(r.id, r.healthy) for r in fleet.pools[0].replicas])))
    await until(lambda: calls)
    assert calls == [[("r0", True), ("r1", False)]]
    replicas[1].mood = "ok"
    await until(lambda: calls[-1] == [("r0", True), ("r1", True)])
    path.write_text(homing_yaml(replicas[0].address))
    watch.reload()
    await until(lambda: calls[-1] == [("r0", True)])


async def test_a_named_replica_is_resolved_before_it_is_probed(tmp_path, homing_yaml, replicas, background, until):
    path = tmp_path / "homing.yaml"
    host, _, port = replicas[0].address.rpartition(":")
    path.write_text(homing_yaml(f"gpu.internal:{port}"))
    calls = []

    async def resolve(name, port):
        return [host]

    watch = FleetWatch(path, Membership(load(path)), Random(1), resolve)
    background(watch.run(lambda config, fleet: calls.append(fleet.pools[0].replicas[0])))
    await until(lambda: calls)
    assert [(r.address, r.healthy) for r in calls] == [(replicas[0].address, True)]


async def test_one_replica_that_hangs_delays_nobody(tmp_path, homing_yaml, replicas, background, until, monkeypatch):
    monkeypatch.setattr(watch_module, "SETTLE_S", 0.3)
    path = tmp_path / "homing.yaml"
    path.write_text(homing_yaml(replicas[0].address, replicas[1].address))
    hung = asyncio.Event()

    class Engine:
        async def epoch(self, asked):
            return 0

        async def unfit(self, asked):
            if asked.address == replicas[0].address:
                await hung.wait()
            return ""

    calls = []
    membership = Membership(load(path))
    proving = Proving(membership, Engine(), None, time.monotonic)
    watch = FleetWatch(path, membership, Random(1), proving=proving)
    background(watch.run(lambda config, fleet: calls.append([r.healthy for r in fleet.pools[0].replicas])))
    await until(lambda: calls == [[False, True]])
    assert watch.begun.is_set()
    assert not watch.prober.settled.is_set()
    hung.set()
    await until(lambda: calls[-1] == [True, True])
