"""The API's routes to the policy: what holds, and what is to hold."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from homing.control.audit import Audit
from homing.control.guard import writer
from homing.control.membership import Membership
from homing.control.policies import ConflictError, Content, Policies, UnknownVersionError
from homing.core.fleet import Mode
from homing.core.policy import Policy, PoolPolicy

Who = Annotated[str, Depends(writer)]
Share = Annotated[float, Field(ge=0, le=1)]
ReplicaId = Annotated[str, Field(min_length=1, max_length=200)]
Version = Annotated[int | None, Query(ge=0, description="the one before the last where nothing is said")]


class PoolPolicyView(BaseModel):
    """`mode`: at most; null: what the file says. `shares`: of the pool's new sessions at most, by replica."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode | None = None
    shares: dict[ReplicaId, Share] = Field(default_factory=dict, max_length=1000)


class PolicyWanted(BaseModel):
    """All of it: what is left out holds no more. With `if_version` only if that one is in force."""

    model_config = ConfigDict(extra="forbid")

    bypass: bool = False
    pools: dict[str, PoolPolicyView] = Field(default_factory=dict, max_length=200)
    if_version: int | None = None

    def content(self) -> Content:
        return Content(self.bypass, {pool: PoolPolicy(said.mode, said.shares) for pool, said in self.pools.items()})


class PolicyView(BaseModel):
    version: int
    at_s: float
    who: str
    bypass: bool
    pools: dict[str, PoolPolicyView]

    @classmethod
    def of(cls, policy: Policy) -> PolicyView:
        pools = {p: PoolPolicyView(mode=said.mode, shares=dict(said.shares)) for p, said in policy.pools.items()}
        return cls(version=policy.version, at_s=policy.at_s, who=policy.who, bypass=policy.bypass, pools=pools)


class DifferenceView(BaseModel):
    pool: str
    policy: str
    holds: str


class PoliciesView(BaseModel):
    """`now` in force; `kept`: false while the kill switch holds at this control service alone, since it cannot be kept;
    `differences`: what of it does not hold, and what does; `earlier`: the newest first."""

    now: PolicyView
    kept: bool
    differences: tuple[DifferenceView, ...]
    earlier: tuple[PolicyView, ...]


def routes(membership: Membership, policies: Policies, audit: Audit) -> APIRouter:
    router = APIRouter(prefix="/api")

    def shown() -> PoliciesView:
        differing = (DifferenceView(pool=d.pool, policy=d.policy, holds=d.holds) for d in policies.differences)
        earlier = tuple(map(PolicyView.of, policies.all[1:]))
        now, kept = PolicyView.of(policies.now), policies.is_kept
        return PoliciesView(now=now, kept=kept, differences=tuple(differing), earlier=earlier)

    @router.get("/policy")
    async def policy() -> PoliciesView:
        """What operators have decided at run time."""
        return shown()

    @router.put("/policy")
    async def put(wanted: PolicyWanted, who: Who) -> PoliciesView:
        """Another policy, from now on. A pool that is not in the file is refused; a replica may come later. What cannot
        be kept is refused too, but for the kill switch (nothing but another `bypass`)."""
        known = {pool.id for pool in membership.view.config.pools}
        if unknown := sorted(wanted.pools.keys() - known):
            raise HTTPException(422, f"there is no pool {unknown[0]!r}")
        content = wanted.content()
        in_any_case = policies.is_kill_switch(content)
        await audit.write(who, "policy", "policy", wanted.model_dump_json(), now_or_later=in_any_case)
        try:
            await policies.put(content, who, wanted.if_version)
        except ConflictError:
            raise HTTPException(409, f"policy {policies.now.version} is in force: look at it first") from None
        return shown()

    @router.post("/policy/rollback")
    async def rollback(who: Who, version: Version = None) -> PoliciesView:
        """What an earlier policy said, as a new one. 0 is none at all."""
        await audit.write(who, "policy rollback", "policy", "" if version is None else f"version={version}")
        try:
            await policies.rollback(who, version)
        except UnknownVersionError as error:
            raise HTTPException(404, f"policy {error} is not kept") from None
        except ConflictError:
            raise HTTPException(409, "another policy came in between") from None
        return shown()

    return router
