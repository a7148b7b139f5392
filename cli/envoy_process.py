"""How Envoy is started by `homing up`: each time anew, from control if it is there, else from its last good files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from homing.cli.child import Probe
from homing.control.envoy_config import ADS, Source

LAST_GOOD = ("lds.json", "cds.json")
BOOTSTRAP = "envoy.yaml"


@dataclass(frozen=True, slots=True)
class EnvoyStart:
    """The argument list of one start. `state` is the directory of control's last good files; `say` tells the user.
    Raises OSError when the bootstrap cannot be written."""

    binary: Path
    run: Path
    state: Path
    workers: int
    control_ready: Probe
    bootstrap: Callable[[Source], str]
    say: Callable[[str], None]

    async def __call__(self) -> Sequence[str]:
        source = ADS if await self.control_ready() or not self._has_last_good() else Source(directory=str(self.state))
        if not source.ads:
            self.say("control is away: envoy starts from the last good configuration")
        file = self.run / BOOTSTRAP
        file.write_text(self.bootstrap(source))
        return arguments(self.binary, file, self.workers)

    def _has_last_good(self) -> bool:
        return all((self.state / name).is_file() for name in LAST_GOOD)


def arguments(binary: Path, bootstrap: Path, workers: int) -> tuple[str, ...]:
    """No hot restart: with it (also under --use-dynamic-base-id) Envoy leaves a file in /dev/shm at every end.
    --drain-time-s stays at its 600 s: when a listener changes, streams in flight are cut after it.
    `main` warns at every start and SIGTERM of what is normal here, `ext_proc` at every request without a picker."""
    return (
        str(binary),
        *("-c", str(bootstrap)),
        "--disable-hot-restart",
        *("--log-level", "warning", "--component-log-level", "main:error,ext_proc:error"),
        *("--log-format", "[%l] %n: %v"),
        *("--concurrency", str(workers)),
    )


def default_workers() -> int:
    """Half of the processors, at most 4: one worker already carries more than a picker decides."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, processors // 2))
