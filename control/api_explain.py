"""The API's route to receipts: where a session's next turn would go, and why."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel

from homing.control.api_sessions import InPool, Tenant
from homing.control.picker_sessions import PickerSessions

Session = Annotated[str, Query(min_length=1, max_length=4096, description="the session's id")]
Model = Annotated[str, Query(max_length=256, description="in the pool of this model only; empty for all")]


class OfferView(BaseModel):
    """What one replica would cost, in tokens of prefill, by term; and what the picker knows of it."""

    replica: str
    cost: float
    terms: dict[str, float]
    waiting_tokens: float
    in_flight: int
    sessions: float
    working_set_tokens: float
    cached_tokens: float
    speed: float


class ReceiptView(BaseModel):
    """One picker's, for one pool. docs/placement.md explains the fields."""

    picker: str
    pool: str
    session: str
    hash_owner: str | None
    home: str | None
    pinned: bool
    idle_s: float | None
    prompt_tokens: float
    further_turns: float
    reason: str
    choice: str | None
    runner_up: str | None
    weighed: bool
    offers: tuple[OfferView, ...]


class ExplainView(BaseModel):
    """`complete`: every picker answered."""

    receipts: tuple[ReceiptView, ...]
    complete: bool


def routes(pickers: PickerSessions) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/explain")
    async def explain(session: Session, tenant: Tenant = "", model: Model = "", pool: InPool = "") -> ExplainView:
        """Where the session's next turn would go if it came now, as each picker sees it. Changes nothing."""
        answers = await pickers.receipts(session, tenant, model, pool)
        views = [
            ReceiptView(picker=name, **msgspec.to_builtins(receipt))
            for name, receipts in answers.items()
            for receipt in receipts or ()
        ]
        return ExplainView(receipts=tuple(views), complete=None not in answers.values())

    return router
