"""An Envoy that is told to end, and takes its time: it accepts no more, ends connections that idle, and waits for those
requests that run. By itself Envoy cuts them all at SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence

import httpx

from homing.cli import tether

ADMIN_TIMEOUT_S = 2.0
EVERY_S = 0.1
RUNNING = r"^http\.homing\.downstream_rq_active$"
CLOSING = ("/healthcheck/fail", "/drain_listeners")
"""Answers now close their connections; then nothing new is accepted."""


async def run(start: Callable[[], Awaitable[Sequence[str]]], admin: str, drain_s: float) -> int:
    """Until it ends, or SIGTERM or SIGINT. Returns its exit status, as a shell has it. Raises OSError."""
    told = asyncio.Queue[None]()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.put_nowait, None)
    argv = (sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *await start())
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
    ended = asyncio.create_task(process.wait())
    await _first(ended, told.get())
    if not ended.done():
        await _first(ended, told.get(), drained(admin, drain_s))
    if not ended.done():
        process.terminate()
    status = await ended
    return status if status >= 0 else 128 - status


async def _first(ended: asyncio.Task[int], *others: Awaitable[None]) -> None:
    """When one of them is done; those of `others` that are not are given up."""
    waiting = [asyncio.ensure_future(other) for other in others]
    await asyncio.wait((ended, *waiting), return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def drained(admin: str, within_s: float) -> None:
    """Closes the Envoy at this admin address to new connections; returns when no request runs there, or time is up. An
    admin that does not answer has nothing to wait for."""
    try:
        async with (
            asyncio.timeout(within_s),
            httpx.AsyncClient(base_url=f"http://{admin}", trust_env=False, timeout=ADMIN_TIMEOUT_S) as client,
        ):
            for path in CLOSING:
                (await client.post(path)).raise_for_status()
            while await _requests(client) > 0:  # noqa: ASYNC110 (what ends it is at the other end)
                await asyncio.sleep(EVERY_S)
    except (httpx.HTTPError, TimeoutError):
        return


async def _requests(client: httpx.AsyncClient) -> int:
    answer = await client.get("/stats", params={"filter": RUNNING})
    found = answer.raise_for_status().text.rpartition(": ")[2].strip()
    return int(found) if found.isdigit() else 0
