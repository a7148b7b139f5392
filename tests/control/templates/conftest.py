"""Replicas that answer `/tokenize` and `/detokenize` as vLLM does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

import pytest

from homing.sim.engines import EngineOptions
from homing.sim.server import Options, Process, bind


class StartEngine(Protocol):
    def __call__(self, template: str | None, max_model_len: int | None = None) -> Awaitable[str]: ...


@pytest.fixture
async def start_engine() -> AsyncIterator[StartEngine]:
    """`await start_engine(template)` gives the address of one that serves the model `m`."""
    processes: list[tuple[Process, asyncio.Task[None]]] = []

    async def start(template: str | None, max_model_len: int | None = None) -> str:
        listener = bind("127.0.0.1", 0)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio's own sets it not for such a socket
        process = Process(Options("r", "m", EngineOptions(max_model_len=max_model_len), chat_template=template))
        processes.append((process, asyncio.create_task(process.run(listener))))
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for process, task in processes:
        process.stop()
        await task
