"""The control service, wired: sources, rollout, ADS, feed, API. One TaskGroup owns all tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec

from homing.control.ads_server import AdsServer, everybody
from homing.control.api import Access, Parts, create_app
from homing.control.audit import Audit
from homing.control.census import PickerCensus
from homing.control.discovery.sources import KINDS, Sources, made_beside
from homing.control.drains import Drains
from homing.control.engine import Engines
from homing.control.engine_transport import trust_in
from homing.control.envoy_config import Wiring
from homing.control.feed import Feed
from homing.control.gateways import warn_of_pins_apart
from homing.control.health import Prober
from homing.control.http_server import HttpServer, listening
from homing.control.keeping import Keeping
from homing.control.last_good import LastGood
from homing.control.leadership import joining
from homing.control.leadership.peer import Knowledge, Peer
from homing.control.leadership.standing import Role
from homing.control.membership import CONTROL, Membership
from homing.control.metrics import ControlCollector, registry
from homing.control.outliers import Outliers
from homing.control.picker_metrics import PickerMetrics
from homing.control.picker_sessions import PickerSessions
from homing.control.policies import Policies
from homing.control.proving import Proving
from homing.control.registrations import SOURCE, Registrations
from homing.control.secrets import SecretError, resolve
from homing.control.snapshot import Snapshot
from homing.control.state import Saved, open_state
from homing.control.telling import LastGoodFiles, Telling
from homing.control.tls import CertificateCollector, ProcessTls
from homing.control.tokens import TokenCheck
from homing.control.trust import in_pickers
from homing.control.watch import FleetWatch
from homing.core.config import Config
from homing.core.fleet import Fleet, decode, encode
from homing.core.placement.load import Place
from homing.core.policy import within
from homing.ext_proc.pins.secret import SharedSecret

log = logging.getLogger(__name__)

ADS_GRACE_S = 0.2
FLEET_FILE = "fleet.json"


class Resources(Protocol):
    """What makes Envoy's configuration of a fleet: the module `control.resources`."""

    def snapshot(self, config: Config, fleet: Fleet, wiring: Wiring) -> Snapshot: ...

    def boot_files(self, config: Config, fleet: Fleet, wiring: Wiring, directory: str) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """`wiring`: where Envoy finds the pickers; `picker_http`: where they answer HTTP, by name; `state`: the directory
    for the last-good files and for what survives a restart, None for none."""

    file: Path
    wiring: Wiring
    picker_http: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None


async def run(config: Config, options: Options, resources: Resources) -> None:
    """Until SIGTERM or SIGINT. Raises OSError when an address or the directory cannot be had, CertificateError when a
    certificate cannot."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    shared = joining.shared(config, options.file)
    state, saved = (shared.state, Saved()) if shared else await asyncio.to_thread(open_state, options.state)
    tls, ads, feed = ProcessTls(config.tls, options.file), AdsServer(), Feed(time.monotonic)
    membership = Membership(config, (SOURCE, *KINDS, CONTROL))
    sources = Sources(membership, made_beside(options.file), state, Random())
    registrations = Registrations(membership, state, time.monotonic)
    trust = trust_in(membership, options.file)
    engines = Engines(_api_keys(options.file, membership), trust)
    proving = Proving(membership, engines, state, time.monotonic)
    first = sources.first_answers
    watch = FleetWatch(options.file, membership, Random(), before_probes=first, proving=proving, trust=trust)
    loop.add_signal_handler(signal.SIGHUP, watch.reload)
    telling = Telling(ads, feed, _snapshots(options, resources), _last_good(options, resources))
    asked, known = options.picker_http, in_pickers(tls)
    pickers, census = PickerMetrics(asked, tls=known), PickerCensus(asked, tls=known)
    sessions = PickerSessions(asked, token=_token(config, options.file), tls=known)
    outliers = Outliers(asked, membership, time.monotonic, tls=known)
    audit, drains = Audit(state, time.time), Drains(membership, census, state, time.time)
    policies = Policies(membership, state, time.time)
    keeping = Keeping(
        drains, registrations, sources, proving, audit, policies, lambda: membership.role() is not Role.FOLLOWING
    )
    peer = _peer(shared, membership, keeping, lambda: feed.version, watch.begun.is_set) if shared else None
    collector = ControlCollector(watch, sources, telling, feed, ads, peer)
    if peer is None:
        keeping.restore(saved)

    def waiting() -> tuple[str, ...]:
        probed, told = watch.begun.is_set(), telling.done.is_set()
        return (() if probed else ("the first round of probes",)) + (() if told else ("the first rollout",))

    async def work() -> None:
        if peer is not None:
            await peer.begin(lambda: _last_fleet(options.state, policies))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(telling.run())
            tasks.create_task(drains.run())
            tasks.create_task(sources.run())
            tasks.create_task(registrations.run())
            tasks.create_task(outliers.run())
            tasks.create_task(keeping.run())
            tasks.create_task(warn_of_pins_apart(lambda: len(ads.streams), lambda: membership.view.config))
            tasks.create_task(watch.run(_unmoved(config, telling.aim)))
            if peer is not None:
                tasks.create_task(peer.run())

    members = membership, drains, census, registrations, sources, audit
    told = ads, feed, registry(collector, CertificateCollector((tls, trust))), pickers, sessions
    tokens = TokenCheck(lambda: membership.view.config.tokens, options.file)
    tokens.say_what_is_missing()
    access = Access(tokens, tls.asks_clients("api"), (tls, trust), trust)
    news = waiting, lambda: watch.reloader.refused, _unfit(watch.prober, proving), watch.templates.progress
    parts = Parts(*members, *told, *news, access, peer, policies)
    http = HttpServer(create_app(parts), tls=tls.server("api"))
    envoys = everybody if tls.asks_clients("xds") else tokens.admits_envoy
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(state.close)
        listener = stack.enter_context(listening(str(config.api)))
        await ads.start(config.xds, tls.grpc_server("xds"), envoys)
        await stack.enter_async_context(pickers)
        await stack.enter_async_context(census)
        await stack.enter_async_context(outliers)
        await stack.enter_async_context(engines)
        await stack.enter_async_context(sessions)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(http.serve([listener]))
        working = tasks.create_task(work())
        await ended.wait()
        working.cancel()
        if peer is not None:
            await peer.leave()
        feed.close()
        http.should_exit = True
        await ads.stop(ADS_GRACE_S)


def _peer(
    shared: joining.Shared,
    membership: Membership,
    keeping: Keeping,
    serving: Callable[[], str],
    settled: Callable[[], bool],
) -> Peer:
    knowledge = Knowledge(keeping.take_over, keeping.known, serving, settled)
    peer = Peer(shared.name, shared.lease, shared.state, membership, knowledge, time.monotonic)
    membership.role = lambda: peer.role
    return peer


def _unfit(prober: Prober, proving: Proving) -> Callable[[Place], str]:
    """Why a replica is not fit to serve, as far as is known here."""
    return lambda place: prober.why_unhealthy(place) or proving.why_unfit(place)


def _last_fleet(state: Path | None, policies: Policies) -> Fleet | None:
    """What was told last, where it can be read; the policies go on with what of them is in it."""
    if state is None:
        return None
    file = state / FLEET_FILE
    try:
        fleet, told_s = decode(file.read_bytes()), file.stat().st_mtime
    except (OSError, msgspec.MsgspecError):
        return None
    policies.go_on(within(fleet), told_s)
    return fleet


def _token(config: Config, file: Path) -> str | None:
    """What pickers on other machines want to be shown, where this service knows the secret that they share."""
    try:
        secret = SharedSecret.of(config.sessions.secret, file, os.environ)
    except SecretError as error:
        log.warning("sessions of pickers on other machines are not shown: sessions.secret: %s", error)
        return None
    return secret.token() if secret.shared else None


def _api_keys(file: Path, membership: Membership) -> Callable[[str], str | None]:
    """The engines' keys by pool, read when they are used: a file may be replaced at any time."""

    def api_key(pool_id: str) -> str | None:
        pool = next((p for p in membership.view.config.pools if p.id == pool_id), None)
        if pool is None or pool.engine.api_key is None:
            return None
        try:
            return resolve(pool.engine.api_key, file, os.environ).decode()
        except (SecretError, UnicodeDecodeError) as error:
            log.warning("pool %s: its engines are asked without a key: %s", pool_id, error)
            return None

    return api_key


def _snapshots(options: Options, resources: Resources) -> Callable[[Config, Fleet], Snapshot]:
    return lambda config, fleet: resources.snapshot(config, fleet, options.wiring)


def _last_good(options: Options, resources: Resources) -> LastGoodFiles | None:
    if options.state is None:
        return None
    files = LastGood(options.state)

    def make(config: Config, fleet: Fleet) -> Mapping[str, bytes]:
        boot = resources.boot_files(config, fleet, options.wiring, str(files.directory))
        return {**boot, FLEET_FILE: encode(fleet)}

    return LastGoodFiles(make, files.write)


def _unmoved(bound: Config, tell: Callable[[Config, Fleet], None]) -> Callable[[Config, Fleet], None]:
    """Says so once when a new file asks for ports that only a new process can listen on."""
    bound_to = (bound.xds, bound.api, bound.admin, bound.tls)
    said = {bound_to}

    def told(config: Config, fleet: Fleet) -> None:
        asked = (config.xds, config.api, config.admin, config.tls)
        if asked not in said:
            said.add(asked)
            where = map(str, bound_to[:3])
            log.warning("xds, api and admin stay at %s, %s and %s until they are restarted, and tls as it is", *where)
        tell(config, fleet)

    return told
