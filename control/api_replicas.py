"""The API's routes by which replicas register themselves, and where the sources of membership are shown."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from homing.control.audit import Audit
from homing.control.discovery.sources import Sources
from homing.control.guard import writer
from homing.control.membership import Membership
from homing.control.registrations import Registration, Registrations, TooManyError
from homing.core.config.address import EngineAddress
from homing.core.config.discovery import MAX_RANKS
from homing.core.config.kinds import Engine, Integer
from homing.core.config.models import REPLICA_ID

Who = Annotated[str, Depends(writer)]
AddressText = Annotated[
    EngineAddress,
    PlainValidator(Engine(), json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
]


class Wanted(BaseModel):
    """The body of a registration. `ttl_s`: it will be repeated within that time; without it, it stays. `dp_size`: the
    engine's data-parallel ranks: replicas `ID-0`, `ID-1` and so on."""

    model_config = ConfigDict(extra="forbid")

    address: AddressText
    weight: Annotated[int, PlainValidator(Integer(1, 128), json_schema_input_type=int)] = 1
    dp_size: Annotated[int, PlainValidator(Integer(1, MAX_RANKS), json_schema_input_type=int)] = 1
    ttl_s: Annotated[float | None, Field(ge=1, le=86_400)] = None


class Registered(BaseModel):
    """`created`: nobody was registered by that id; `changed`: somebody was, with another address, weight, ranks
    or `ttl_s`. `believed`: where the fleet has it from; the file wins over the API."""

    created: bool
    changed: bool
    believed: str


class Removed(BaseModel):
    """`was_registered`: false when there was nothing to take back."""

    was_registered: bool


class SourceView(BaseModel):
    """One source of one pool. `answered`: since the start; `doubted`: it finds nobody, and is not believed yet."""

    pool: str
    kind: str
    replicas: int
    answered: bool
    error: str
    doubted: bool


class DifferenceView(BaseModel):
    """What a source says of a replica and another, which is believed, says differently."""

    pool: str
    replica: str
    believed: str
    source: str
    ours: str
    theirs: str


class SourcesView(BaseModel):
    sources: tuple[SourceView, ...]
    differences: tuple[DifferenceView, ...]


def routes(membership: Membership, registrations: Registrations, sources: Sources, audit: Audit) -> APIRouter:
    router = APIRouter(prefix="/api")

    def may_register(pool_id: str) -> bool:
        pool = next((p for p in membership.view.config.pools if p.id == pool_id), None)
        if pool is None:
            raise HTTPException(404, f"there is no pool {pool_id!r}")
        return pool.discovery is not None and pool.discovery.api

    @router.put("/pools/{pool}/replicas/{replica}")
    async def register(pool: str, replica: str, wanted: Wanted, who: Who) -> Registered:
        """Registers a replica, or says that it is still there. The pool has to allow it (`discovery.api`)."""
        if not may_register(pool):
            raise HTTPException(403, f"the file does not let replicas register in pool {pool!r}: discovery.api")
        try:
            REPLICA_ID(replica)
        except ValueError:
            raise HTTPException(422, f"an id is {REPLICA_ID.allowed}") from None
        registration = Registration(
            pool,
            replica,
            str(wanted.address),
            wanted.weight,
            wanted.ttl_s,
            wanted.dp_size,
            secure=wanted.address.secure,
        )
        before = registrations.get((pool, replica))
        if before != registration:  # else a heartbeat, which is no write
            await audit.write(who, "register", f"{pool}/{replica}", f"{wanted.address} weight={wanted.weight}")
        try:
            await registrations.put(registration)
        except TooManyError:
            raise HTTPException(409, "too many replicas are registered") from None
        return Registered(
            created=before is None,
            changed=before is not None and before != registration,
            believed=membership.source((pool, registration.replicas[0].id)),
        )

    @router.delete("/pools/{pool}/replicas/{replica}")
    async def deregister(pool: str, replica: str, who: Who) -> Removed:
        """Takes a registration back. At once: drain first where sessions are to end in peace."""
        if registrations.get((pool, replica)) is None:
            return Removed(was_registered=False)
        await audit.write(who, "deregister", f"{pool}/{replica}")
        return Removed(was_registered=await registrations.remove((pool, replica)))

    @router.get("/sources")
    async def all_sources() -> SourcesView:
        """Where replicas come from, how the sources do, and where they disagree."""
        return SourcesView(
            sources=tuple(
                SourceView(
                    pool=pool,
                    kind=kind,
                    replicas=health.found,
                    answered=health.answered,
                    error=health.error,
                    doubted=health.doubted,
                )
                for (pool, kind), health in sorted(sources.health.items())
            ),
            differences=tuple(
                DifferenceView(**{name: getattr(difference, name) for name in DifferenceView.model_fields})
                for difference in membership.differences
            ),
        )

    return router
