"""`GET /sessions` and `DELETE /sessions` of a picker: where sessions live, and their end by word.

`session` (its id), `tenant`, `pool` and `limit` come in the query. The control service asks; nobody logs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from homing.core.known import KnownSessions, listed, look_up
from homing.core.placement.pools import CompiledPool
from homing.core.session import SessionKey

if TYPE_CHECKING:
    from homing.ext_proc.picker import Picker

MAX_LISTED = 1000


def routes(picker: Picker, clock: Callable[[], float]) -> tuple[Route, ...]:
    def pools(request: Request) -> list[CompiledPool]:
        asked = request.query_params.get("pool")
        return [pool for pool_id, pool in picker.fleet.by_id.items() if asked is None or pool_id == asked]

    async def get(request: Request) -> Response:
        key = _key(request)
        if key is not None:
            found = look_up(picker.placer, pools(request), key, clock())
            return _json(KnownSessions(len(picker.placer.homes), found))
        limit = request.query_params.get("limit", "")
        at_most = min(int(limit), MAX_LISTED) if limit.isdecimal() and limit.isascii() else MAX_LISTED
        return _json(listed(picker.placer, pools(request), at_most, clock()))

    async def delete(request: Request) -> Response:
        key = _key(request)
        if key is None:
            return Response("which session?\n", 400)
        now = clock()
        found = look_up(picker.placer, pools(request), key, now)
        picker.placing.close(pools(request), key, "api")  # also where it is not known here: siblings may know it
        return _json(KnownSessions(len(picker.placer.homes), found))

    return (Route("/sessions", get), Route("/sessions", delete, methods=["DELETE"]))


def _key(request: Request) -> SessionKey | None:
    """As Envoy makes it of the two."""
    session = request.query_params.get("session", "").encode()
    tenant = request.query_params.get("tenant", "").encode()
    return SessionKey(tenant, b"", tenant + b"/").named(session) if session else None


def _json(known: KnownSessions) -> Response:
    return Response(msgspec.json.encode(known), media_type="application/json")
