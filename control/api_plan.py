"""`POST /api/plan`: what a change would move. It changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from homing.control.census import Left
from homing.control.membership import Membership
from homing.core.config.models import ReplicaConfig
from homing.core.fleet import Replica
from homing.core.placement.load import Place
from homing.core.plan import Changes, PoolPlan, UnplannableError, plan

MAX_CHANGES = 1_000

Census = Callable[[], Awaitable[Mapping[Place, Left]]]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Added(_Body):
    """As the file would have it."""

    pool: str
    id: str
    address: str
    weight: int = 1

    def replica(self) -> Replica:
        """Ready at once, as it will be. Raises ValidationError for what the file would not take."""
        checked = ReplicaConfig(id=self.id, address=self.address, weight=self.weight)
        return Replica(checked.id, str(checked.address), checked.weight)


class Named(_Body):
    pool: str
    id: str


class PlanRequest(_Body):
    """All changes together."""

    add: Annotated[tuple[Added, ...], Field(max_length=MAX_CHANGES)] = ()
    remove: Annotated[tuple[Named, ...], Field(max_length=MAX_CHANGES)] = ()
    drain: Annotated[tuple[Named, ...], Field(max_length=MAX_CHANGES)] = ()

    def changes(self) -> Changes:
        """Raises ValidationError."""
        return Changes(
            tuple((added.pool, added.replica()) for added in self.add),
            tuple((named.pool, named.id) for named in self.remove),
            tuple((named.pool, named.id) for named in self.drain),
        )


class PlanView(BaseModel):
    """Every pool that would change."""

    pools: tuple[PoolPlan, ...]


def routes(membership: Membership, census: Census) -> APIRouter:
    """`census` asks the pickers; empty where none answers."""
    router = APIRouter(prefix="/api")

    @router.post("/plan")
    async def planned(request: PlanRequest) -> PlanView:
        """Which share of the hash, and how many sessions, a change would move."""
        try:
            changes = request.changes()
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from None
        left = await census()
        sessions = {place: there.sessions for place, there in left.items()} if left else None
        try:
            pools = await asyncio.to_thread(plan, membership.view.fleet, changes, sessions)
        except UnplannableError as error:
            raise HTTPException(422, str(error)) from None
        return PlanView(pools=pools)

    return router
