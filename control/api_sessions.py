"""The API's routes to see and to end sessions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel

from homing.control.audit import Audit
from homing.control.guard import writer
from homing.control.picker_sessions import Answers, PickerSessions

Who = Annotated[str, Depends(writer)]
Tenant = Annotated[str, Query(max_length=1024, description="whose session it is; empty where there are no tenants")]
InPool = Annotated[str, Query(max_length=63, description="in this pool only; empty for all")]
Limit = Annotated[int, Query(ge=1, le=1000, description="so many at most")]


class SessionView(BaseModel):
    """One session in one pool. `session` is a keyed hash of its id; `pinned`: it lives elsewhere than its hash says
    (null in a list: the ids are not known there)."""

    session: str
    pool: str
    replica: str
    idle_s: float
    pinned: bool | None


class SessionsView(BaseModel):
    """`total`: the sessions and responses in the largest table of a picker; `complete`: every picker answered."""

    sessions: tuple[SessionView, ...]
    total: int
    complete: bool

    @classmethod
    def of(cls, answers: Answers) -> SessionsView:
        views = (SessionView(**{f: getattr(k, f) for f in SessionView.model_fields}) for k in answers.sessions)
        return cls(sessions=tuple(views), total=answers.total, complete=answers.complete)


def routes(pickers: PickerSessions, audit: Audit) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/sessions")
    async def sessions(pool: InPool = "", limit: Limit = 100) -> SessionsView:
        """Some of the sessions that the pickers remember, the ones used last first."""
        return SessionsView.of(await pickers.listed(pool, limit))

    @router.get("/sessions/{session:path}")
    async def session(session: str, tenant: Tenant = "", pool: InPool = "") -> SessionsView:
        """Where the session lives, in each pool that knows it; nothing for one that no picker remembers."""
        return SessionsView.of(await pickers.look_up(session, tenant, pool))

    @router.delete("/sessions/{session:path}")
    async def close(session: str, who: Who, tenant: Tenant = "", pool: InPool = "") -> SessionsView:
        """The session has ended: its home is forgotten. Answers where it lived."""
        found = await pickers.look_up(session, tenant, pool)
        hashes = " ".join(sorted({known.session for known in found.sessions}))
        await audit.write(who, "close session", hashes or "unknown", pool)
        return SessionsView.of(await pickers.close(session, tenant, pool))

    return router
