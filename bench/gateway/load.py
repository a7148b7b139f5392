"""Asks a gateway and checks every answer: `python -m bench.gateway.load PLAN` with a Plan as JSON; prints a Result.

An answer is right if it is a whole 200 of the replica's, and, where homing is asked, if the session's id comes back
with it and the replica is the one that served the session before.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from dataclasses import dataclass, field
from typing import cast

import msgspec
import uvloop

from bench.gateway.wire import BODY_END, DONE, EVENT, chat_body, conversation, request

_SERVED = b'"served_by":"'
_TAIL = len(BODY_END)


class Plan(msgspec.Struct, frozen=True):
    """`rate_per_s` 0: closed loop, each connection asks again as soon as it has its answer; else so many a second, each
    on time. `streams`: so many server-sent event streams at once instead."""

    port: int
    seconds: float
    connections: int
    body_bytes: int = 2_048
    sessions: int = 256  # 0: no request names one
    conversations: int = 0  # so many are begun and go on, and no request names them; 0: each begins one
    expect_session: bool = False
    sticky: bool = False
    rate_per_s: float = 0.0
    streams: int = 0
    events: int = 0
    interval_ms: int = 0


class Result(msgspec.Struct, frozen=True):
    """Times in ms. `wrong` counts what each wrong answer was."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    wrong: dict[str, int]


@dataclass
class Run:
    """What all connections share."""

    plan: Plan
    requests: list[tuple[bytes, bytes]]  # with the line in which the answer must name the session
    once: int = 0  # of them, the first so many are asked but once
    homes: dict[int, bytes] = field(default_factory=dict)
    times: array[float] = field(default_factory=lambda: array("d"))
    wrong: dict[str, int] = field(default_factory=dict)
    next: int = 0
    over: bool = False

    def is_wrong(self, why: str) -> None:
        self.wrong[why] = self.wrong.get(why, 0) + 1

    def check(self, number: int, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200"):
            return self.is_wrong(answer[:24].decode("latin-1"))
        at = answer.rfind(_SERVED)
        if at < 0:
            return self.is_wrong("another body")
        if self.plan.expect_session and self.requests[number][1] not in answer:
            return self.is_wrong("no session in the answer")
        if self.plan.sticky:
            served = answer[at + 13 : at + 16]
            if self.homes.setdefault(number, served) != served:
                return self.is_wrong("another replica")
        return None


class Asking(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self._number = 0
        self._since = 0.0
        self.idle = True
        self.done = asyncio.get_running_loop().create_future()
        self.on_idle: asyncio.Queue[Asking] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.idle:
            self._run.is_wrong("the connection ended")
        if not self.done.done():
            self.done.set_result(None)

    def ask(self, since: float) -> None:
        run = self._run
        assert self._transport is not None
        number = self._number = run.next
        run.next = number + 1 if number + 1 < len(run.requests) else run.once
        self._since, self.idle = since, False
        self._transport.write(run.requests[number][0])

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        if not _is_whole(data):
            self._partial = data
            return
        self._partial = b""
        now = time.perf_counter()
        run = self._run
        run.times.append(now - self._since)
        run.check(self._number, data)
        self.idle = True
        if run.over:
            self.close()
        elif self.on_idle is not None:
            self.on_idle.put_nowait(self)
        else:
            self.ask(now)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def _is_whole(data: bytes) -> bool:
    if data.endswith(BODY_END):
        return b"\r\ntransfer-encoding: chunked" not in data
    if data.endswith(b"\r\n0\r\n\r\n"):
        return True
    end = data.find(b"\r\n\r\n")
    if end < 0 or data.startswith(b"HTTP/1.1 200"):
        return False
    at = data.find(b"content-length: ")  # an error
    return 0 < at < end and len(data) - end - 4 == int(data[at + 16 : data.index(b"\r", at)])


async def _connect(run: Run, count: int) -> list[Asking]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(lambda: Asking(run), "127.0.0.1", run.plan.port))[1] for _ in range(count)]


async def _closed(run: Run) -> float:
    asking = await _connect(run, run.plan.connections)
    began = time.perf_counter()
    for connection in asking:
        connection.ask(time.perf_counter())
    await asyncio.sleep(run.plan.seconds)
    run.over = True
    took = time.perf_counter() - began
    await asyncio.wait_for(asyncio.gather(*(connection.done for connection in asking)), 30)
    return took


async def _open(run: Run) -> float:
    """A request that finds no idle connection opens one; its time counts from when it was due."""
    idle: asyncio.Queue[Asking] = asyncio.Queue()
    everyone = await _connect(run, run.plan.connections)
    for connection in everyone:
        connection.on_idle = idle
        idle.put_nowait(connection)
    began = time.perf_counter()
    for number in range(int(run.plan.seconds * run.plan.rate_per_s)):
        due = began + number / run.plan.rate_per_s
        if (ahead := due - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        if idle.empty():
            (more,) = await _connect(run, 1)
            more.on_idle = idle
            everyone.append(more)
            more.ask(due)
        else:
            idle.get_nowait().ask(due)
    took = time.perf_counter() - began
    run.over = True
    for connection in everyone:
        if connection.idle:
            connection.close()
    await asyncio.wait_for(asyncio.gather(*(connection.done for connection in everyone)), 30)
    return took


async def _stream(run: Run, number: int, gate: asyncio.Semaphore) -> None:
    plan = run.plan
    due = time.perf_counter()
    try:
        async with gate:  # connections are made a few hundred at a time; streams stay open together
            reader, writer = await asyncio.open_connection("127.0.0.1", plan.port)
            writer.write(run.requests[number % len(run.requests)][0])
            head = await reader.readuntil(b"\r\n\r\n")
        run.times.append(time.perf_counter() - due)
        content = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return run.is_wrong(type(error).__name__)
    if not head.startswith(b"HTTP/1.1 200"):
        return run.is_wrong(head[:24].decode("latin-1"))
    if content.count(EVENT) != plan.events or DONE not in content:
        return run.is_wrong("events are missing")
    return None


async def _streams(run: Run) -> float:
    gate = asyncio.Semaphore(run.plan.connections)
    began = time.perf_counter()
    await asyncio.gather(*(_stream(run, number, gate) for number in range(run.plan.streams)))
    return time.perf_counter() - began


def _requests(plan: Plan) -> list[tuple[bytes, bytes]]:
    if plan.conversations:
        run = f" of {time.time_ns():x}"
        turns = [conversation(number, plan.body_bytes, run) for number in range(plan.conversations)]
        bodies = [first for first, _ in turns] + [second for _, second in turns]
        return [(request(plan.port, body, None), b"\r\nx-session-id: ") for body in bodies]
    body = chat_body(plan.body_bytes)
    stream = f"{plan.events} {plan.interval_ms}" if plan.streams else None
    if not plan.sessions:
        return [(request(plan.port, body, None, stream), b"\r\nx-session-id: ")]
    names = [f"bench-session-{number:06d}" for number in range(plan.sessions)]
    return [(request(plan.port, body, name, stream), f"\r\nx-session-id: {name}\r\n".encode()) for name in names]


async def measure(plan: Plan) -> Result:
    run = Run(plan, _requests(plan), once=plan.conversations)
    took = await (_streams(run) if plan.streams else _open(run) if plan.rate_per_s else _closed(run))
    times = sorted(run.times)
    if not times:
        return Result(0, took, 0.0, 0.0, run.wrong or {"no answer": 1})
    at = [times[min(len(times) - 1, int(len(times) * share))] * 1e3 for share in (0.5, 0.99)]
    return Result(len(times), took, at[0], at[1], run.wrong)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(uvloop.run(measure(msgspec.json.decode(sys.argv[1], type=Plan)))).decode())
