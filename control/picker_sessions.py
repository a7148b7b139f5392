"""Sessions, asked of every picker: each knows those that it placed, and those that its siblings tell it of."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import msgspec

from homing.control.picker_http import TIMEOUT_S, client, fetch
from homing.core.known import Known, KnownSessions
from homing.core.placement.explain import Receipt

MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Answers:
    """What the pickers know together: of a session that several know, the word of the one that saw it last.
    `complete`: all pickers answered. `total` is the largest of their tables."""

    sessions: tuple[Known, ...]
    total: int
    complete: bool


class PickerSessions:
    """Asks every picker. An asynchronous context manager."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`addresses` by the pickers' names. `token`: for those on other machines. `tls`: None where they speak plain
        text."""
        self._timeout_s = timeout_s
        self._clients = {name: client(address, tls) for name, address in addresses.items()}
        for each in self._clients.values() if token is not None else ():
            each.headers["authorization"] = f"Bearer {token}"

    async def __aenter__(self) -> PickerSessions:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._clients.values():
            await each.aclose()

    async def listed(self, pool: str, limit: int) -> Answers:
        """Some sessions, at most `limit`."""
        answers = await self._ask("GET", {"pool": pool, "limit": str(limit)})
        return Answers(answers.sessions[:limit], answers.total, answers.complete)

    async def look_up(self, session: str, tenant: str, pool: str) -> Answers:
        return await self._ask("GET", {"session": session, "tenant": tenant, "pool": pool})

    async def receipts(self, session: str, tenant: str, model: str, pool: str) -> dict[str, tuple[Receipt, ...] | None]:
        """By the pickers' names; None for one that did not answer. Each decides by what it knows itself."""
        query = {"session": session, "tenant": tenant, "model": model, "pool": pool}
        path = f"/explain?{urlencode({name: value for name, value in query.items() if value})}"
        asking = (fetch(each, path, self._timeout_s, MAX_BYTES) for each in self._clients.values())
        return {name: _receipts(body) for name, body in zip(self._clients, await asyncio.gather(*asking), strict=True)}

    async def close(self, session: str, tenant: str, pool: str) -> Answers:
        """Where it lived."""
        return await self._ask("DELETE", {"session": session, "tenant": tenant, "pool": pool})

    async def _ask(self, method: str, query: Mapping[str, str]) -> Answers:
        path = f"/sessions?{urlencode({name: value for name, value in query.items() if value})}"
        asking = (self._one(each, path, method) for each in self._clients.values())
        return merged(await asyncio.gather(*asking))

    async def _one(self, asked: httpx.AsyncClient, path: str, method: str) -> KnownSessions | None:
        body = await fetch(asked, path, self._timeout_s, MAX_BYTES, method)
        try:
            return None if body is None else msgspec.json.decode(body, type=KnownSessions)
        except msgspec.DecodeError:
            return None


def _receipts(body: bytes | None) -> tuple[Receipt, ...] | None:
    try:
        return None if body is None else msgspec.json.decode(body, type=tuple[Receipt, ...])
    except msgspec.DecodeError:
        return None


def merged(answers: list[KnownSessions | None]) -> Answers:
    """None for a picker that did not answer."""
    given = [answer for answer in answers if answer is not None]
    newest: dict[tuple[str, str], Known] = {}
    for known in (known for answer in given for known in answer.sessions):
        place = known.session, known.pool
        if place not in newest or known.idle_s < newest[place].idle_s:
            newest[place] = known
    sessions = sorted(newest.values(), key=lambda known: known.idle_s)
    return Answers(tuple(sessions), max((a.total for a in given), default=0), len(given) == len(answers))
