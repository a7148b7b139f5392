"""A small HTTP/1.1 client of plain sockets: thousands of streams at once, and the rudeness that libraries hide."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

USER = [{"role": "user", "content": "hello"}]


def request(body: bytes, headers: Mapping[str, str] | None = None, path: str = "/v1/chat/completions") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: test", "content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chat_body(model: str, *, stream: bool = False, max_tokens: int = 8) -> bytes:
    return json.dumps({"model": model, "messages": USER, "stream": stream, "max_tokens": max_tokens}).encode()


@dataclass
class Answer:
    """`chunks` as they arrived, with the time of each (of the loop's clock). `complete`: it ended as HTTP says.
    `connected`: there was somebody to ask."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    connected: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(chunk for _, chunk in self.chunks)


async def ask(
    port: int, message: bytes, timeout_s: float = 60.0, host: str = "127.0.0.1", into: Answer | None = None
) -> Answer:
    """One request on a connection of its own. A broken answer is an answer that is not `complete`. `into` is filled as
    it comes, for those who cannot wait."""
    answer = into or Answer()
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            answer.connected = True
            try:
                writer.write(message)  # not drained: an early answer is read while the body is still on its way
                await _read(reader, answer)
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        pass
    return answer


async def _read(reader: asyncio.StreamReader, answer: Answer) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    answer.status = int(head[0].split()[1])
    answer.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if ": " in line)}
    now = asyncio.get_running_loop().time
    if answer.headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            answer.chunks.append((now(), (await reader.readexactly(size + 2))[:-2]))
        await reader.readexactly(2)
    else:
        answer.chunks.append((now(), await reader.readexactly(int(answer.headers["content-length"]))))
    answer.complete = True


async def many(port: int, messages: list[bytes], at_once: int, timeout_s: float = 60.0) -> list[Answer]:
    """All of `messages`, at most `at_once` together."""
    gate = asyncio.Semaphore(at_once)

    async def one(message: bytes) -> Answer:
        async with gate:
            return await ask(port, message, timeout_s)

    return await asyncio.gather(*map(one, messages))


async def eventually(holds: Callable[[], Awaitable[bool]], what: str, tries: int = 100, pause_s: float = 0.2) -> None:
    """Asks again and again, for a test that must not wait for ever."""
    for _ in range(tries):
        if await holds():
            return
        await asyncio.sleep(pause_s)
    raise AssertionError(f"waited for {what}")


@contextlib.asynccontextmanager
async def again_and_again(turns: Callable[[], Awaitable[object]], pause_s: float = 0.0) -> AsyncIterator[None]:
    """`turns` all the time, so long apart; the last has ended when this returns."""

    async def load() -> None:
        while not ended.is_set():
            await turns()
            await asyncio.sleep(pause_s)

    ended = asyncio.Event()
    loading = asyncio.create_task(load())
    try:
        yield
    finally:
        ended.set()
        await loading
