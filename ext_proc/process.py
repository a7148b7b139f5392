"""One picker, wired: placement, the transport, the fleet's source, the HTTP port. One TaskGroup owns all tasks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Literal
from uuid import uuid4

from prometheus_client import CollectorRegistry

from homing.control.engine_transport import EngineTrust
from homing.control.http_server import HttpServer, listening
from homing.control.membership import Membership
from homing.control.reload import Reloader
from homing.control.secrets import SecretError
from homing.control.tls import CertificateCollector, ProcessTls
from homing.control.trust import PLAIN, Trust, in_control, in_pickers
from homing.control.watch import FleetWatch
from homing.core.chains import Chains
from homing.core.config import Address, Config
from homing.core.fleet import Fleet
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.prefix.index import Index
from homing.core.session import Homes
from homing.ext_proc import http, nginx_server, receipts, residents, sessions
from homing.ext_proc.engines import Engines, HttpAsk
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.feed import Feed, follow
from homing.ext_proc.guard import guarded
from homing.ext_proc.identity import Identity
from homing.ext_proc.keeping import text_store
from homing.ext_proc.metrics import PickerCollector, SettingsCollector, Ttft
from homing.ext_proc.picker import Picker
from homing.ext_proc.pins.knowledge import Knowledge
from homing.ext_proc.pins.metrics import PinsCollector
from homing.ext_proc.pins.secret import SharedSecret
from homing.ext_proc.pins.sharing import Sharing, pins_url, shared_secret
from homing.ext_proc.prefix_metrics import PrefixCollector
from homing.ext_proc.prefixes import Prefixes
from homing.ext_proc.prompts import TemplatePrompts
from homing.ext_proc.seals import seals
from homing.ext_proc.sharding import shard
from homing.ext_proc.transport import Transport

LEAVING_S = 0.6
"""Envoy asks every half second who serves. Until then it is answered, or it would have to place requests alone."""

GRACE_S = 1.0
"""Streams still open then are cut: Envoy lets their requests go on."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """Addresses are `unix:/path` or `host:port`. `control`: the URL of the control service, or None.
    `nginx_log`: where NGINX's access log comes in; with it the HTTP port decides for NGINX. `shards`: where the pickers
    listen among which Envoy shares out the sessions."""

    file: Path
    listen: str
    http: str
    control: str | None
    name: str
    transport: Literal["h2", "grpc"] = "h2"
    siblings: tuple[str, ...] = ()
    nginx_log: Address | None = None
    shards: tuple[str, ...] = ()


@dataclass(slots=True)
class Told:
    """What this process goes by now."""

    config: Config
    fleet: Fleet = field(default_factory=Fleet)
    reloader: Reloader | None = None
    trouble: str = ""
    """Why the settings of `config` are not used."""

    def is_newest(self) -> bool:
        """Whether it goes by the newest file."""
        return not self.trouble and (self.reloader is None or self.reloader.refused is None)


def time_of_day() -> Callable[[], float]:
    """Seconds since the epoch as of now, counted on by a clock that nobody sets: what is shared is stamped by it."""
    offset_s = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset_s


def build_picker(
    config: Config,
    file: Path,
    registry: CollectorRegistry,
    prefixes: Prefixes,
    secret: bytes,
    clock: Callable[[], float],
) -> Picker:
    """Raises SecretError."""
    placer = Placer(
        Homes(config.sessions.ttl_s, config.sessions.max),
        Chains(config.sessions.ttl_s, config.sessions.max),
        Load(),
        secret=secret,
        break_tie=Random().randrange,
        prefixes=prefixes.index,
    )
    identity, chance = Identity(time.time, lambda: str(uuid4()).encode()), Random().random
    ttft = Ttft(registry)
    picker = Picker(placer, clock=clock, ttft=ttft, identity=identity, prefixes=prefixes, chance=chance)
    picker.configure(config, seals(config, file, os.environ))
    registry.register(PickerCollector(picker))
    registry.register(PrefixCollector(prefixes))
    return picker


def build_sharing(
    config: Config,
    options: Options,
    picker: Picker,
    prefixes: Index,
    secret: SharedSecret,
    clock: Callable[[], float],
    tls: ssl.SSLContext | None,
) -> Sharing:
    """Raises SharingError."""
    placer = picker.placer
    parted = placer.shard is not None
    knowledge = Knowledge(secrets.token_hex(8), placer.homes, placer.chains, placer.load, prefixes, clock)
    sharing = Sharing(options.siblings, secret, knowledge, parted=parted, tls=tls)
    if (url := pins_url(config.sessions, options.file)) is not None:
        sharing.keep_in_redis(url)
    picker.unread.mine, picker.unread.anyones = sharing.first_sight, sharing.first_sight_of_anyones
    return sharing


async def run(config: Config, options: Options) -> None:
    """Until SIGTERM or SIGINT. Raises OSError when an address cannot be had, SharingError when the secret or the store
    of pins cannot, CertificateError when a certificate cannot."""
    registry = CollectorRegistry()
    told = Told(config)
    engines = EngineTrust(lambda: (told.config, told.fleet), options.file)
    prefixes = Prefixes(Index(), engines)
    clock, secret = time_of_day(), shared_secret(config.sessions, options.file)
    picker = build_picker(config, options.file, registry, prefixes, secret.sessions(), clock)
    picker.placer.shard = shard(options.shards, options.listen)
    tls = ProcessTls(config.tls, options.file)
    trust = in_control(config, options.file, tls, options.control) if options.control is not None else PLAIN
    siblings_tls = in_pickers(tls) if options.siblings else None
    sharing = build_sharing(config, options, picker, prefixes.index, secret, clock, siblings_tls)
    registry.register(CertificateCollector((tls, engines)))
    registry.register(PinsCollector(sharing.counts))
    registry.register(SettingsCollector(told.is_newest))
    texts = text_store(config, options.file, picker, secret, clock)
    transport = _transport(options, picker, tls)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    token = secret.token() if secret.shared else None
    asked = (
        residents.routes(picker, clock, sharing.shares),
        guarded((*sessions.routes(picker, clock), *receipts.routes(picker, clock)), token),
    )
    own = (*chain.from_iterable(asked), *sharing.routes())
    async with nginx_server.for_nginx(picker, options.nginx_log, clock) as protocol:
        serving = http.app(registry, lambda: None if picker.version else "no fleet yet", own)
        server = HttpServer(serving, protocol, None if options.http.startswith("unix:") else tls.server("picker_http"))
        with listening(options.http) as listener:
            await transport.start()
            # What is here stays, and requests leave no cycles: to look at every session for some is a pause of 100 ms.
            # What came lately is looked at in small pieces: 100,000 objects at once were a pause of 16 to 57 ms.
            gc.freeze()
            gc.set_threshold(700, 1_000, 100)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve([listener]))
                await sharing.catch_up()
                shared = [tasks.create_task(sharing.run())]
                if texts is not None:
                    shared.append(tasks.create_task(texts.run()))
                feeding = tasks.create_task(prefixes.run())
                asking = tasks.create_task(_ask_engines(picker, engines))
                prompts = TemplatePrompts(options.control, options.file, clock, trust, engines)
                proving = tasks.create_task(_prove(picker, prompts))
                adopt = _adopting(picker, transport, tasks, told)
                following = tasks.create_task(_follow(options, picker, adopt, prompts, trust, told))
                await ended.wait()
                await _leave(transport)
                for task in (asking, following, feeding, proving):
                    task.cancel()
                await transport.stop(GRACE_S)
                for sharer in shared:
                    sharer.cancel()
                await asyncio.wait(shared)
                server.should_exit = True


async def _leave(transport: Transport) -> None:
    await transport.set_serving(False)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEAVING_S):
            while transport.connected:  # noqa: ASYNC110 (what ends it is at the other end)
                await asyncio.sleep(0.02)


def _transport(options: Options, picker: Picker, tls: ProcessTls) -> Transport:
    """Only the one that is chosen is imported. A Unix socket needs no TLS: who may open it is in its mode."""
    by_tcp = not options.listen.startswith("unix:")
    if options.transport == "h2":
        from homing.ext_proc.server_h2 import H2Transport

        context = tls.server("picker", ("h2",)) if by_tcp else None
        return H2Transport(options.listen, lambda: Exchange(picker), picker.finished, context)
    from homing.ext_proc.server_grpc import GrpcTransport

    credentials = tls.grpc_server("picker") if by_tcp else None
    return GrpcTransport(options.listen, lambda: Exchange(picker), picker.finished, credentials)


async def _ask_engines(picker: Picker, trust: EngineTrust) -> None:
    async with HttpAsk(trust) as ask:
        await Engines(ask, lambda: picker.fleet, picker.engine_told, Random()).run()


async def _prove(picker: Picker, prompts: TemplatePrompts) -> None:
    async with prompts:
        await picker.proof.run(prompts)


def _adopting(picker: Picker, transport: Transport, tasks: asyncio.TaskGroup, told: Told) -> Callable[[Fleet], None]:
    """The picker serves from its first fleet on: before, Envoy would ask it in vain."""

    def adopt(fleet: Fleet) -> None:
        first = picker.version is None
        told.fleet = fleet
        picker.adopt(fleet)
        if first:
            tasks.create_task(transport.set_serving(True))

    return adopt


def _configuring(picker: Picker, file: Path, told: Told) -> Callable[[Config], None]:
    """New settings whose secrets cannot be had change nothing."""

    def configure(config: Config) -> None:
        told.config, told.trouble = config, ""
        try:
            picker.configure(config, seals(config, file, os.environ))
        except SecretError as e:
            told.trouble = str(e)
            log.error("the settings stay as they were: %s", e)

    return configure


async def _follow(
    options: Options,
    picker: Picker,
    adopt: Callable[[Fleet], None],
    prompts: TemplatePrompts,
    trust: Trust,
    told: Told,
) -> None:
    """The file's settings always; the fleet from control while there is one, else from the file and own probes."""
    reloader = told.reloader = Reloader(options.file, told.config, _configuring(picker, options.file, told))
    loop = asyncio.get_running_loop()
    feed = Feed(options.control, options.name, adopt, trust) if options.control is not None else None

    async def watch() -> None:
        last = feed.last if feed else Fleet()
        following = FleetWatch(options.file, Membership.following(reloader.config, last), Random())
        prompts.found = following.templates.progress

        def reload() -> None:
            following.reload()
            reloader.ask()

        loop.add_signal_handler(signal.SIGHUP, reload)
        await following.run(lambda _, fleet: adopt(fleet))

    loop.add_signal_handler(signal.SIGHUP, reloader.ask)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reloader.run())
        tasks.create_task(watch() if feed is None else follow(feed, watch))
