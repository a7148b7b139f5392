"""The API's route that shows the control services which act as one."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from homing.control.leadership.peer import Peer
from homing.control.leadership.standing import Role


class MemberView(BaseModel):
    """One control service. `file`: the version of the fleet as its file has it; `serving`: of the one that it tells."""

    name: str
    role: Role
    file: str
    serving: str


class ControlView(BaseModel):
    """`state`: `local`, or `shared`; `trouble`: why the store does not answer, empty while it does. `same_file` is
    false when the members' files have different fleets: the leader's counts."""

    name: str
    role: Role
    state: str
    trouble: str
    same_file: bool
    members: tuple[MemberView, ...]


def routes(peer: Peer | None) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/control")
    async def control() -> ControlView:
        """This control service, and those that it acts as one with."""
        if peer is None:
            return ControlView(name="", role=Role.LEADING, state="local", trouble="", same_file=True, members=())
        members = tuple(MemberView(name=m.name, role=m.role, file=m.file, serving=m.serving) for m in peer.members)
        return ControlView(
            name=peer.name,
            role=peer.role,
            state="shared",
            trouble=peer.trouble,
            same_file=len({member.file for member in members}) < 2,
            members=members,
        )

    return router
