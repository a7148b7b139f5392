"""Keeps the children of `homing up` alive, and ends them all.

Each child has one task: wait for the children it comes after, start, probe until ready, wait for its end, and as
`restarts.decide` says start it again. The supervisor itself waits until all required children are ready, then
until it is told to stop. State changes only between awaits; whoever waits for a state re-reads it after each change.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from homing.cli.child import Child, Running
from homing.cli.restarts import Backoff, End, Exited, GiveUp, History, NotStarted, decide


class Reports(Protocol):
    """Where the supervisor says what happens."""

    def say(self, line: str) -> None:
        """One line of the supervisor's own."""

    def child_line(self, name: str, line: str) -> None:
        """One line that a child wrote."""

    def progress(self, ready: int, of: int, waiting: Sequence[str]) -> None:
        """How far the start is; `waiting` names the children that run but are not ready."""


@dataclass(frozen=True, slots=True)
class Timing:
    start_s: float = 30.0  # until every required child is ready
    probe_every_s: float = 0.1
    stop_s: float = 3.0  # from the first SIGTERM to SIGKILL
    stop_first_s: float = 1.0  # of which those that end first may take so much alone
    reap_s: float = 2.0  # after SIGKILL: only a process stuck in the kernel takes longer


class Supervisor:
    def __init__(
        self,
        children: Sequence[Child],
        reports: Reports,
        *,
        timing: Timing | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._children = tuple(children)
        self._reports = reports
        self._timing = timing or Timing()
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._chance = chance
        self._required = {c.name for c in self._children if c.required}
        self._changed = asyncio.Event()
        self._running: dict[str, Running] = {}
        self._ready: set[str] = set()
        self._starting = True
        self._stopping = False
        self._impatient = False
        self._problem: str | None = None

    def stop(self) -> None:
        """Ends everything; asked a second time, without grace. Safe to call from a signal handler of the loop."""
        self._impatient = self._stopping
        self._stopping = True
        self._notify()

    def pids(self) -> dict[str, int]:
        """The running children's process ids by name."""
        return {name: running.pid for name, running in self._running.items()}

    async def run(self, on_ready: Callable[[], None]) -> str | None:
        """Runs until `stop()`; `on_ready` is called once. Returns why the start failed, or None.
        Whichever way it ends, no child is left."""
        async with asyncio.TaskGroup() as tasks:
            for child in self._children:
                tasks.create_task(self._keep(child), name=child.name)
            if await self._within(self._timing.start_s, self._start_decided):
                if not self._stopping and self._problem is None:
                    self._starting = False
                    on_ready()
                    await self._until(lambda: self._stopping)
            else:
                self._problem = self._not_ready()
            await self._end()
        return self._problem

    # Waiting

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()

    async def _within(self, seconds: float, holds: Callable[[], bool]) -> bool:
        """Whether it held before the time was over."""
        try:
            async with asyncio.timeout(seconds):
                await self._until(holds)
        except TimeoutError:
            return False
        return True

    def _start_decided(self) -> bool:
        return self._required <= self._ready or self._problem is not None or self._stopping

    def _not_ready(self) -> str:
        """Names those that could have been ready: not the ones that only wait for these."""
        late = [c.name for c in self._children if c.name in self._required - self._ready and self._may_start(c)]
        return f"{', '.join(late)} not ready after {self._timing.start_s:g} s"

    def _may_start(self, child: Child) -> bool:
        return set(child.after) <= self._ready

    # One child

    async def _keep(self, child: Child) -> None:
        await self._until(lambda: self._may_start(child) or self._stopping)
        history = History()
        while not self._stopping:
            history = history.started(self._clock())
            end = await self._live(child)
            if self._stopping:
                return
            chance = self._chance()
            next_step = decide(self._backoff, history, end, now_s=self._clock(), starting=self._starting, chance=chance)
            if isinstance(next_step, GiveUp):
                self._problem = f"{child.name} ended ({end}): {next_step.reason}"
                self._notify()
                return
            self._reports.say(f"{child.name} ended ({end}), restarting in {next_step.delay_s:.1f} s")
            history = next_step.history
            await self._within(next_step.delay_s, lambda: self._stopping)

    async def _live(self, child: Child) -> End:
        """From its start to its end."""
        try:
            argv = await child.argv()
            running = await Running.start(argv, child.env, lambda line: self._reports.child_line(child.name, line))
        except OSError as error:
            return NotStarted(f"cannot start: {error}")
        self._running[child.name] = running
        self._notify()
        if self._stopping:  # told so during the start: _end() may have looked before it was there
            running.signal_group(signal.SIGKILL)
        try:
            async with asyncio.TaskGroup() as tasks:
                probing = tasks.create_task(self._probe(child))
                status = await running.wait()
                probing.cancel()
            return Exited(status)
        finally:
            del self._running[child.name]
            self._ready.discard(child.name)
            self._notify()

    async def _probe(self, child: Child) -> None:
        asked_s = self._clock()
        self._progress()
        while not await child.ready():
            if await self._within(self._timing.probe_every_s, lambda: self._stopping):
                return
        self._ready.add(child.name)
        if not self._starting:
            self._reports.say(f"{child.name} is ready again after {self._clock() - asked_s:.1f} s")
        self._progress()
        self._notify()

    def _progress(self) -> None:
        if self._starting:
            waiting = [name for name in self._running if name not in self._ready]
            self._reports.progress(len(self._ready), len(self._children), waiting)

    # The end of all

    async def _end(self) -> None:
        self._stopping = True
        self._notify()
        first = {c.name for c in self._children if c.ends_first}
        began_s = self._clock()
        self._ask(first)
        await self._gone(self._timing.stop_first_s, first)
        self._ask(self._running.keys() - first)
        await self._gone(began_s + self._timing.stop_s - self._clock(), set(self._running))
        for running in self._running.values():
            running.signal_group(signal.SIGKILL)
        if not await self._within(self._timing.reap_s, lambda: not self._running):
            self._reports.say(f"cannot end {', '.join(self._running)}: stuck in the kernel")

    def _ask(self, names: set[str]) -> None:
        for name in names & self._running.keys():
            self._running[name].ask_to_end()

    async def _gone(self, seconds: float, names: set[str]) -> None:
        await self._within(seconds, lambda: self._impatient or not names & self._running.keys())
