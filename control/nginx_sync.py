"""NGINX's files follow the fleet: written whole, tested, taken by a reload; taken back where the test fails.

Open-source NGINX takes membership by a reload only. Old workers finish their streams, so no request is lost.
Source of the reload's guarantees: nginx.org, "Controlling nginx".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from homing.core.fleet import Fleet, State

COMMAND_S = 30.0
SETTLE_S = 0.2
"""Changes come in groups: one reload for all of a group, since every reload leaves old workers behind."""

log = logging.getLogger(__name__)


class Synced(StrEnum):
    """What became of one fleet."""

    UNCHANGED = "unchanged"
    RELOADED = "reloaded"
    REFUSED = "refused"  # the test failed: the files are as before
    NOT_RELOADED = "not_reloaded"  # the files are new, the reload failed: it is tried again with the next fleet


@dataclass(frozen=True, slots=True)
class Commands:
    """What tests the configuration, and what makes NGINX take it."""

    test: Sequence[str] = ("nginx", "-t")
    reload: Sequence[str] = ("nginx", "-s", "reload")


class NginxFiles:
    """The files in `directory`, as `render` makes them of a fleet, by name."""

    def __init__(self, directory: Path, render: Callable[[Fleet], Mapping[str, str]], commands: Commands) -> None:
        self._directory = directory
        self._render = render
        self._commands = commands
        self._taken = True

    async def apply(self, fleet: Fleet) -> Synced:
        """Raises OSError when the directory cannot be written."""
        wanted = {self._directory / name: text for name, text in self._render(proven(fleet)).items()}
        before = {path: path.read_text() if path.exists() else None for path in wanted}
        if self._taken and before == wanted:
            return Synced.UNCHANGED
        _write(wanted)
        if not await _succeeds(self._commands.test):
            _write(before)
            log.error("NGINX's test refused the files of fleet %s: the ones before are back", fleet.version)
            return Synced.REFUSED
        self._taken = await _succeeds(self._commands.reload)
        if not self._taken:
            return Synced.NOT_RELOADED
        log.info("NGINX follows fleet %s", fleet.version)
        return Synced.RELOADED


class Follower:
    """Applies the newest fleet, one at a time."""

    def __init__(self, files: NginxFiles, settle_s: float = SETTLE_S) -> None:
        self._files = files
        self._settle_s = settle_s
        self._newest: Fleet | None = None
        self._changed = asyncio.Event()

    def adopt(self, fleet: Fleet) -> None:
        self._newest = fleet
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._settle_s)
            self._changed.clear()
            assert self._newest is not None
            await self._files.apply(self._newest)


def proven(fleet: Fleet) -> Fleet:
    """The fleet without replicas that have not answered yet. Those that fail or drain stay: NGINX passes over a dead
    one by itself, and a draining one still serves its own sessions. A pool that would be empty keeps all it has, since
    NGINX refuses an upstream without servers."""
    pools = []
    for pool in fleet.pools:
        known = tuple(r for r in pool.replicas if r.state is not State.JOINING)
        pools.append(replace(pool, replicas=known or pool.replicas))
    return Fleet(tuple(pools))


def _write(files: Mapping[Path, str | None]) -> None:
    """Each file appears whole; None takes it away."""
    for path, text in files.items():
        if text is None:
            path.unlink(missing_ok=True)
            continue
        new = path.with_name(f".{path.name}.new")
        new.write_text(text)
        os.replace(new, path)


async def _succeeds(command: Sequence[str]) -> bool:
    """Runs it for COMMAND_S at most; what it says on failure is logged."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        log.error("%s cannot be run: %s", command[0], error.strerror)
        return False
    try:
        async with asyncio.timeout(COMMAND_S):
            said, _ = await process.communicate()
    except TimeoutError:
        log.error("%s took more than %d s", command[0], COMMAND_S)
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        log.error("%s failed: %s", " ".join(command), said.decode(errors="replace").strip()[-2000:])
    return process.returncode == 0
