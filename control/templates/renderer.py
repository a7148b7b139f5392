"""Templates rendered in the worker's process, seen from an event loop: no template can hold the loop up.

The process is started with the first job, and again after a job has ended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

import msgspec

from homing.control.templates.worker import TIME_LIMIT_S, Answer, Job, Probe, Recorded, Refusal, Rendered, Rendering
from homing.core.template.probe import RefusedError
from homing.core.template.record import Capabilities
from homing.core.template.source import ChatTemplate

log = logging.getLogger(__name__)

START_S = 30.0
"""For a start on a machine that is busy with everything else that starts."""

PATIENCE_S = 10.0
"""Beyond the limit of processor time, for one that does not get it."""

GRACE_S = 1.0
MAX_JOB_BYTES = 16 << 20
MAX_ANSWER_BYTES = 64 << 20
_INHERITED = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")  # and no secret

_decode = msgspec.msgpack.Decoder(Answer).decode


class WorkerLostError(Exception):
    """The job has ended the worker: it took too long or too much memory. Says so."""


class Renderer:
    """One worker, one job at a time, in the order of asking. An asynchronous context manager."""

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.lost = 0
        """Workers that a job has ended, since the start."""
        self._time_limit_s = time_limit_s
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Renderer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Ends the worker; a later job starts another."""
        await self._end()

    async def probe(self, template: ChatTemplate, seed: bytes, dates: Sequence[str]) -> Capabilities:
        """Raises RefusedError for a template that cannot be probed, WorkerLostError."""
        answer = await self._do(Probe(template, seed, tuple(dates)))
        assert isinstance(answer, Recorded)
        return answer.record

    async def render(
        self, template: ChatTemplate, messages: list[dict[str, object]], tools: list[object] | None = None
    ) -> str:
        """The prompt. Raises RefusedError with the template's words, WorkerLostError."""
        answer = await self._do(Rendering(template, messages, tools))
        assert isinstance(answer, Rendered)
        return answer.text

    async def _do(self, job: Job) -> Recorded | Rendered:
        body = msgspec.msgpack.encode(job)
        if len(body) > MAX_JOB_BYTES:
            raise RefusedError(f"more than {MAX_JOB_BYTES} bytes to render")
        async with self._turn:
            answer = await self._exchanged(body)
        if isinstance(answer, Refusal):
            raise RefusedError(answer.words)
        return answer

    async def _exchanged(self, body: bytes) -> Answer:
        new = self._process is None
        try:
            process = self._process or await self._started()
        except OSError as error:
            raise WorkerLostError(f"no process to render in: {error.strerror or error}") from None
        done = False
        try:
            async with asyncio.timeout(self._time_limit_s + PATIENCE_S + (START_S if new else 0)):
                answer = _decode(await _exchange(process, body))
            done = True
            return answer
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, msgspec.DecodeError) as error:
            self.lost += 1
            gone = isinstance(error, asyncio.IncompleteReadError | ConnectionError)
            raise WorkerLostError(self._why(await self._end(grace_s=GRACE_S if gone else 0))) from None
        finally:
            if not done:  # also when the caller was cancelled: the answer would be taken for the next job's
                await self._end()

    def _why(self, code: int | None) -> str:
        if code in (-signal.SIGPROF, -signal.SIGKILL):
            return f"took more than {self._time_limit_s:g} s to render"
        return "took too much memory, or crashed, while rendering"

    async def _started(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "homing.control.templates.worker", str(self._time_limit_s),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        )  # fmt: skip
        return self._process

    async def _end(self, grace_s: float = 0) -> int | None:
        """What the worker ended with, by itself within `grace_s` or killed; None where there was none."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                return await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # asyncio's own kill() reaps a dead child before the loop can
        return await process.wait()


async def _exchange(process: asyncio.subprocess.Process, body: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(len(body).to_bytes(4) + body)
    await process.stdin.drain()
    size = int.from_bytes(await process.stdout.readexactly(4))
    if size > MAX_ANSWER_BYTES:
        raise ConnectionError
    return await process.stdout.readexactly(size)
