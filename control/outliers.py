"""Asks the pickers what becomes of requests, and takes replicas from new sessions that answer probes and fail those."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping

import httpx
import msgspec

from homing.control.leadership.standing import Role
from homing.control.membership import Membership
from homing.control.picker_http import TIMEOUT_S, client, fetch
from homing.core.fleet import RequestsJudged
from homing.core.outliers import Record, Tallies, Tally, added, judged
from homing.core.placement.load import Place

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
MAX_BYTES = 1 << 20


class Outliers:
    """Owns what is known of failing replicas. An asynchronous context manager."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        membership: Membership,
        clock: Callable[[], float],
        tls: ssl.SSLContext | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`addresses` of the pickers by their names; `clock` is monotonic."""
        self.ejections = 0
        """Since the start."""
        self._clients = {name: client(address, tls) for name, address in addresses.items()}
        self._membership = membership
        self._clock = clock
        self._interval_s = interval_s
        self._records: dict[Place, Record] = {}

    async def __aenter__(self) -> Outliers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._clients.values():
            await each.aclose()

    async def run(self) -> None:
        """Until cancelled."""
        while self._clients:
            await asyncio.sleep(self._interval_s)
            if self._membership.role() is not Role.FOLLOWING:
                self._judge(await self._seen())

    async def _seen(self) -> dict[Place, Tally]:
        """A picker that does not answer has seen nothing."""
        answers = await asyncio.gather(*map(self._ask, self._clients.values()))
        return added([tally for answer in answers for tally in answer])

    async def _ask(self, asked: httpx.AsyncClient) -> tuple[Tally, ...]:
        body = await fetch(asked, "/outcomes", TIMEOUT_S, MAX_BYTES)
        try:
            return () if body is None else msgspec.json.decode(body, type=Tallies).replicas
        except msgspec.MsgspecError:
            return ()

    def _judge(self, seen: Mapping[Place, Tally]) -> None:
        view, now = self._membership.view, self._clock()
        if not view.config.health.passive:
            seen, self._records = {}, {}
        before, self._records = self._records, judged(view.fleet, seen, self._records, now)
        for place, record in self._records.items():
            if record != before.get(place):
                self.ejections += 1
                tally = seen[place]
                log.warning(
                    "replica %s of pool %s fails %d of %d requests, %d in a row: no new sessions for %.0f s",
                    place[1], place[0], tally.failures, tally.requests, tally.run, record.until_s - now,
                )  # fmt: skip
        failing = {place for place, record in self._records.items() if now < record.until_s}
        changed = [
            RequestsJudged(pool.id, r.id, (pool.id, r.id) in failing)
            for pool in view.fleet.pools
            for r in pool.replicas
            if r.failing is not ((pool.id, r.id) in failing)
        ]
        self._membership.apply(*changed)
