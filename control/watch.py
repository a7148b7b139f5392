"""The fleet of one file, kept up to date: what the control service and a picker without one have in common."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from homing.control.discovery.static import Resolve, StaticDiscovery, resolve
from homing.control.engine_transport import EngineTrust, trust_in
from homing.control.health import HttpProbe, Prober
from homing.control.membership import Membership
from homing.control.proving import Proving
from homing.control.reload import Reloader
from homing.control.templates.finding import Finder
from homing.control.templates.lengths import Lengths
from homing.control.templates.prober import TemplateProber
from homing.core.config import Config
from homing.core.fleet import Fleet

SETTLE_S = 5.0

OnChange = Callable[[Config, Fleet], None]


class FleetWatch:
    """Reads the file again when it changes, resolves names, probes replicas and their chat templates. Needs no other
    part of control.

    watch = FleetWatch(path, Membership(load(path)), Random())
    loop.add_signal_handler(signal.SIGHUP, watch.reload)
    await watch.run(on_change)          # for ever
    """

    def __init__(
        self,
        path: Path,
        membership: Membership,
        random: Random,
        resolve: Resolve = resolve,
        before_probes: Callable[[], Awaitable[None]] | None = None,
        proving: Proving | None = None,
        trust: EngineTrust | None = None,
    ) -> None:
        """`before_probes`: what is to be waited for before the first round of probes; `proving`: see Prober; `trust`:
        how replicas that speak TLS are trusted, where others ask them too."""
        self.membership = membership
        self.reloader = Reloader(path, membership.view.config, membership.configure)
        self.discovery = StaticDiscovery(membership, resolve)
        self.trust = trust or trust_in(membership, path)
        self._probe = HttpProbe(self.trust)
        self.prober = Prober(membership, self._probe, random, proving)
        self._finder = Finder(path, random, self.trust)
        self.templates = TemplateProber(membership, self._finder, random)
        self.lengths = Lengths(membership, self._finder, random)
        self.begun = asyncio.Event()
        """Set once the first round of probes is over, or has had its time."""
        self._before_probes = before_probes

    def reload(self) -> None:
        """Reads the file at once. For SIGHUP."""
        self.reloader.ask()

    async def run(self, on_change: OnChange) -> None:
        """Until cancelled. Calls `on_change` on the loop's thread: first when every replica has been probed to a
        verdict (before, all would look unfit), then for each newer (config, fleet)."""
        async with self._probe, self._finder, asyncio.TaskGroup() as tasks:
            if self._before_probes is not None:
                await self._before_probes()
            tasks.create_task(self.discovery.run())
            await self.discovery.first_round.wait()
            tasks.create_task(self.prober.run())
            with contextlib.suppress(TimeoutError):  # one replica that hangs delays nobody
                async with asyncio.timeout(SETTLE_S):
                    await self.prober.settled.wait()
            self.begun.set()
            tasks.create_task(self.reloader.run())
            tasks.create_task(self.templates.run())
            tasks.create_task(self.lengths.run())
            serial, view = self.membership.views.serial, self.membership.view
            while True:
                on_change(view.config, view.fleet)
                serial, view = await self.membership.views.after(serial)
