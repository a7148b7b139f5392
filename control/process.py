"""The control service, wired: sources, rollout, ADS, feed, API. One TaskGroup owns all tasks."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from homing.control.ads_server import AdsServer
from homing.control.api import Parts, create_app
from homing.control.envoy_config import Wiring
from homing.control.feed import Feed
from homing.control.http_server import HttpServer, listening
from homing.control.last_good import LastGood
from homing.control.metrics import ControlCollector, registry
from homing.control.picker_metrics import PickerMetrics
from homing.control.snapshot import Snapshot
from homing.control.telling import LastGoodFiles, Telling
from homing.control.watch import FleetWatch
from homing.core.config import Config
from homing.core.fleet import Fleet, encode

log = logging.getLogger(__name__)

ADS_GRACE_S = 0.2


class Resources(Protocol):
    """What makes Envoy's configuration of a fleet: the module `control.resources`."""

    def snapshot(self, config: Config, fleet: Fleet, wiring: Wiring) -> Snapshot: ...

    def boot_files(self, config: Config, fleet: Fleet, wiring: Wiring, directory: str) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """`wiring`: where Envoy finds the pickers; `picker_http`: where their metrics are, by name; `state`: for the
    last-good files, None for none."""

    file: Path
    wiring: Wiring
    picker_http: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None


async def run(config: Config, options: Options, resources: Resources) -> None:
    """Until SIGTERM or SIGINT. Raises OSError when an address or the directory cannot be had."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    ads, feed = AdsServer(), Feed(time.monotonic)
    watch = FleetWatch(options.file, config, Random())
    loop.add_signal_handler(signal.SIGHUP, watch.reload)
    telling = Telling(ads, feed, _snapshots(options, resources), _last_good(options, resources))
    collector = ControlCollector(watch, telling, feed, ads)
    pickers = PickerMetrics(options.picker_http)

    def waiting() -> tuple[str, ...]:
        probed, told = watch.prober.settled.is_set(), telling.done.is_set()
        return (() if probed else ("the first round of probes",)) + (() if told else ("the first rollout",))

    parts = Parts(watch.membership, ads, feed, registry(collector), pickers, waiting)
    http = HttpServer(create_app(parts))
    with listening(str(config.api)) as listener:
        await ads.start(config.xds)
        async with pickers, asyncio.TaskGroup() as tasks:
            tasks.create_task(http.serve([listener]))
            followers = [
                tasks.create_task(telling.run()),
                tasks.create_task(watch.run(_unmoved(config, telling.aim))),
            ]
            await ended.wait()
            for follower in followers:
                follower.cancel()
            feed.close()
            http.should_exit = True
            await ads.stop(ADS_GRACE_S)


def _snapshots(options: Options, resources: Resources) -> Callable[[Config, Fleet], Snapshot]:
    return lambda config, fleet: resources.snapshot(config, fleet, options.wiring)


def _last_good(options: Options, resources: Resources) -> LastGoodFiles | None:
    if options.state is None:
        return None
    files = LastGood(options.state)

    def make(config: Config, fleet: Fleet) -> Mapping[str, bytes]:
        boot = resources.boot_files(config, fleet, options.wiring, str(files.directory))
        return {**boot, "fleet.json": encode(fleet)}

    return LastGoodFiles(make, files.write)


def _unmoved(bound: Config, tell: Callable[[Config, Fleet], None]) -> Callable[[Config, Fleet], None]:
    """Says so once when a new file asks for ports that only a new process can listen on."""
    bound_to = (bound.xds, bound.api, bound.admin)
    said = {bound_to}

    def told(config: Config, fleet: Fleet) -> None:
        asked = (config.xds, config.api, config.admin)
        if asked not in said:
            said.add(asked)
            log.warning("xds, api and admin stay at %s, %s and %s until they are restarted", *map(str, bound_to))
        tell(config, fleet)

    return told
