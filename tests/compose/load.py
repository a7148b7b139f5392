"""Sessions that take turns through a published port, all the time."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import yaml
from e2e.client import Answer, again_and_again, ask, chat_body, request

Place = tuple[str, int]

AT_ONCE = 4
PAUSE_S = 0.2  # two processors are shared by all of it


def calm(source: Path, directory: Path) -> str:
    """A copy of a file's directory, for HOMING_CONFIG. Sessions live where their hash says, and nobody leaves a home
    for its load, which on a busy machine would be a wait to speak of."""
    copied = Path(shutil.copytree(source, directory / source.name))
    file = copied / "homing.yaml"
    settings = yaml.safe_load(file.read_text())
    for pool in settings["pools"].values():
        pool["placement"] = {"leave_tokens": 1_000_000, "hash_preference_tokens": 1_000_000_000, "slow_start_s": 0}
    settings["health"] = {"timeout_s": 10}
    settings["expose_decisions"] = True  # who served
    file.write_text(yaml.safe_dump(settings))
    for readable in (*copied.iterdir(), copied, directory, directory.parent):
        readable.chmod(0o755)
    return str(copied)


def names(count: int) -> list[str]:
    """Sessions that were not there before."""
    return [f"s{i}-{uuid4().hex[:8]}" for i in range(count)]


@dataclass
class Load:
    """Sessions with ids of their own. `places`: who gets no connection at one goes on to the next, as clients do with
    the addresses of a name. Once connected, it is the answer that counts."""

    places: Sequence[Place]
    model: str
    sessions: Sequence[str] = field(default_factory=lambda: names(16))
    failed: list[Answer] = field(default_factory=list)

    async def turns(self) -> dict[str, str]:
        """One turn of every session; who served each."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def turn(session: str) -> Answer:
            async with gate:
                message = request(chat_body(self.model), {"x-session-id": session})
                for host, port in self.places:
                    answer = await ask(port, message, host=host)
                    if answer.connected:
                        break
            return answer

        given = await asyncio.gather(*map(turn, self.sessions))
        self.failed += [a for a in given if a.status != 200 or not a.complete]
        return {s: a.headers.get("x-homing-replica", "nobody") for s, a in zip(self.sessions, given, strict=True)}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Turns all the time; not one may fail."""
        async with again_and_again(self.turns, PAUSE_S):
            yield
        assert [(a.status, a.body[:200]) for a in self.failed] == []
