"""Who lives where, asked of every picker: what is left at a replica that drains."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx
import msgspec

from homing.control.picker_http import TIMEOUT_S, client, fetch
from homing.core.fleet import State
from homing.core.placement.load import Place
from homing.core.residents import Census, Residents

MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Left:
    """What is still at a replica. `certain`: every picker says so, and none sends new sessions there."""

    sessions: int
    streams: int
    certain: bool

    @property
    def nothing(self) -> bool:
        return self.certain and not self.sessions and not self.streams


class PickerCensus:
    """Asks every picker for GET /replicas. An asynchronous context manager."""

    def __init__(
        self, addresses: Mapping[str, str], timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> None:
        """`addresses` by the pickers' names. `tls`: None where they speak plain text."""
        self._timeout_s = timeout_s
        self._clients = {name: client(address, tls) for name, address in addresses.items()}

    async def __aenter__(self) -> PickerCensus:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._clients.values():
            await each.aclose()

    async def __call__(self) -> Mapping[Place, Left]:
        """After the time limit at the latest. A place that nobody speaks of is not in it."""
        return tally(await asyncio.gather(*map(self._ask, self._clients.values())))

    async def _ask(self, asked: httpx.AsyncClient) -> Census | None:
        body = await fetch(asked, "/replicas", self._timeout_s, MAX_BYTES)
        try:
            return None if body is None else msgspec.json.decode(body, type=Census)
        except msgspec.DecodeError:
            return None


def tally(answers: Sequence[Census | None]) -> dict[Place, Left]:
    """All pickers' together; None for one that did not answer."""
    given = [answer for answer in answers if answer is not None]
    shared = any(answer.shared for answer in given)
    by_place: dict[Place, list[Residents]] = {}
    for answer in given:
        for residents in answer.replicas:
            by_place.setdefault((residents.pool, residents.replica), []).append(residents)

    def left(found: Sequence[Residents]) -> Left:
        sessions = [residents.sessions for residents in found]
        drained = len(found) == len(answers) and all(r.state is State.DRAINING for r in found)
        return Left(max(sessions) if shared else sum(sessions), sum(r.streams for r in found), drained)

    return {place: left(found) for place, found in by_place.items()}
