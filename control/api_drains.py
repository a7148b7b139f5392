"""The API's routes to drain replicas and to take drains back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel

from homing.control.audit import Audit
from homing.control.census import Left
from homing.control.drains import Drain, Drains, TooManyDrainsError
from homing.control.guard import writer
from homing.control.membership import Membership
from homing.core.placement.load import Place

DEFAULT_DEADLINE_S = 900.0
MAX_DEADLINE_S = 7 * 86_400.0
MAX_WAIT_S = 3600.0

Who = Annotated[str, Depends(writer)]
Deadline = Annotated[float, Query(ge=0, le=MAX_DEADLINE_S, description="seconds until it leaves at the latest")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="answer when it has left, or after so many seconds")]
Limit = Annotated[int, Query(ge=1, le=10_000)]


class DrainView(BaseModel):
    """One drain. `state`: `draining` or `left`. `sessions` and `streams` are what is still there (null: unknown, or
    gone); of one that left, `moved` is how many sessions were still there, and `why` `idle` or `deadline`. `rank`:
    where several data-parallel ranks share the address, which it is."""

    pool: str
    replica: str
    state: str
    since_s: float
    deadline_s: float
    sessions: int | None
    streams: int | None
    ended_s: float | None
    why: str | None
    moved: int | None
    rank: int | None

    @classmethod
    def of(cls, drain: Drain, left: Left | None, rank: int | None) -> DrainView:
        ended = drain.ended_s is not None
        return cls(
            pool=drain.pool,
            replica=drain.replica,
            state="left" if ended else "draining",
            since_s=drain.since_s,
            deadline_s=drain.deadline_s,
            sessions=None if ended or left is None else left.sessions,
            streams=None if ended or left is None else left.streams,
            ended_s=drain.ended_s,
            why=drain.why,
            moved=drain.sessions,
            rank=rank,
        )


class DrainsView(BaseModel):
    """All drains that were not taken back, the oldest first."""

    drains: tuple[DrainView, ...]


class Undrained(BaseModel):
    """`was_draining`: false when there was nothing to take back."""

    was_draining: bool


class AuditEntry(BaseModel):
    at_s: float
    who: str
    what: str
    target: str
    details: str


class AuditView(BaseModel):
    """The newest writes first."""

    entries: tuple[AuditEntry, ...]


def routes(membership: Membership, drains: Drains, audit: Audit) -> APIRouter:
    router = APIRouter(prefix="/api")

    def found(pool: str, replica: str) -> tuple[Place, ...]:
        """By id, or by the address that it has where the id is not known: all data-parallel ranks of it."""
        written = membership.written.pool(pool)
        if written is not None:
            if written.replica(replica) is not None:
                return ((pool, replica),)
            if ranks := tuple((pool, r.id) for r in written.replicas if replica in (r.host, r.address)):
                return ranks
        raise HTTPException(404, f"there is no replica {replica!r} in a pool {pool!r}")

    def shown(drain: Drain) -> DrainView:
        pool = membership.written.pool(drain.pool)
        replica = pool.replica(drain.replica) if pool is not None else None
        return DrainView.of(drain, drains.left.get(drain.place), replica.rank if replica is not None else None)

    @router.post("/pools/{pool}/replicas/{replica}/drain")
    async def drain(
        pool: str, replica: str, who: Who, deadline_s: Deadline = DEFAULT_DEADLINE_S, wait_s: Wait = 0
    ) -> DrainView:
        """Takes no new sessions from now on; leaves when none is left there, or at the deadline. The name or the
        address of several data-parallel ranks drains all of them, and is answered for all together."""
        ranks = found(pool, replica)
        for place in ranks:
            await audit.write(who, "drain", "/".join(place), f"deadline_s={deadline_s:g}")
        try:
            begun = [await drains.drain(place, deadline_s) for place in ranks]
        except TooManyDrainsError:
            raise HTTPException(409, "too many replicas are drained: take some back") from None
        await drains.look(ranks[0])
        waited = await asyncio.gather(*(drains.wait(place, wait_s) for place in ranks))
        views = [shown(now or before) for now, before in zip(waited, begun, strict=True)]
        return views[0] if len(views) == 1 else _together(replica, views)

    @router.post("/pools/{pool}/replicas/{replica}/undrain")
    async def undrain(pool: str, replica: str, who: Who) -> Undrained:
        """Takes new sessions again; a replica that had left comes back once its probes succeed."""
        ranks = found(pool, replica)
        for place in ranks:
            await audit.write(who, "undrain", "/".join(place))
        return Undrained(was_draining=any([await drains.undrain(place) for place in ranks]))

    @router.get("/drains")
    async def all_drains() -> DrainsView:
        """Who drains or was drained away, with what is still there."""
        return DrainsView(drains=tuple(map(shown, drains.all)))

    @router.get("/audit")
    async def audit_log(limit: Limit = 100) -> AuditView:
        """The newest writes by this API."""
        entries = (AuditEntry(**{f: getattr(e, f) for f in AuditEntry.model_fields}) for e in audit.newest(limit))
        return AuditView(entries=tuple(entries))

    return router


def _together(name: str, ranks: Sequence[DrainView]) -> DrainView:
    """All data-parallel ranks of an address as one: it has left when the last of them has."""
    ended = [rank.ended_s for rank in ranks if rank.ended_s is not None]
    left = len(ended) == len(ranks)
    return DrainView(
        pool=ranks[0].pool,
        replica=name,
        state="left" if left else "draining",
        since_s=min(rank.since_s for rank in ranks),
        deadline_s=max(rank.deadline_s for rank in ranks),
        sessions=None if left else _sum(rank.sessions for rank in ranks if rank.state != "left"),
        streams=None if left else _sum(rank.streams for rank in ranks if rank.state != "left"),
        ended_s=max(ended) if left else None,
        why=None if not left else "deadline" if any(rank.why == "deadline" for rank in ranks) else "idle",
        moved=_sum(rank.moved for rank in ranks) if left else None,
        rank=None,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """None when one is not known."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
