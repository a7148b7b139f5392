"""One child process of `homing up`: as a value, and while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from homing.cli import tether

Argv = Callable[[], Awaitable[Sequence[str]]]
Probe = Callable[[], Awaitable[bool]]

LINE_BYTES_MAX = 65_536  # a longer line is passed on in pieces


def fixed(*argv: str) -> Argv:
    """The argument list of a child that is started the same way each time."""

    async def unchanged() -> Sequence[str]:
        return argv

    return unchanged


@dataclass(frozen=True, slots=True)
class Child:
    """What to run, and when it counts as ready.

    `argv` is called before each start, so a child may be started otherwise the second time; OSError counts as an end.
    `ready` must not raise. `after` names the children that must have been ready before the first start.
    The whole is ready when every `required` child is. `ends_first`: told to end before the others.
    """

    name: str
    argv: Argv
    ready: Probe
    env: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    required: bool = True
    ends_first: bool = False


class Running:
    """A started child, the head of its own process group (and session: no terminal reaches it)."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.Task[None]) -> None:
        self._process = process
        self._output = output

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str], line: Callable[[str], None]) -> Running:
        """`line` gets each line of its stdout and stderr. Raises OSError."""
        read, write = os.pipe()
        try:
            # Our own pipe: with asyncio's, wait() may wait for whoever else holds it, not just for the child.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env={**os.environ, **env},
                start_new_session=True,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        return cls(process, asyncio.create_task(_pass_lines(read, line)))

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def ask_to_end(self) -> None:
        self.signal_group(signal.SIGTERM)
        self.signal_group(signal.SIGCONT)  # a frozen one would not hear it

    async def wait(self) -> int:
        """Its exit status (negative: signal), once nothing of its group is left and its last lines are passed on."""
        try:
            status = await self._process.wait()
        finally:
            self.signal_group(signal.SIGKILL)
            await asyncio.shield(self._process.wait())
            await asyncio.wait([self._output], timeout=0.5)  # someone who left the group may hold the pipe
            self._output.cancel()
        return status


async def _pass_lines(descriptor: int, line: Callable[[str], None]) -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    rest = b""
    try:
        while data := await reader.read(LINE_BYTES_MAX):
            *whole, rest = (rest + data).split(b"\n")
            for text in whole:
                line(text.decode(errors="replace").rstrip("\r"))
            if len(rest) >= LINE_BYTES_MAX:
                line(rest.decode(errors="replace"))
                rest = b""
        if rest:
            line(rest.decode(errors="replace"))
    finally:
        transport.close()
