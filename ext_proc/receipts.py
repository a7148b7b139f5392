"""`GET /explain` of a picker: the receipt of one session, in each pool or in that of a model.

`session`, `tenant`, `model`, `pool` and `bytes` (of the next turn's body) come in the query. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from homing.core.placement.explain import explain
from homing.core.placement.pools import CompiledPool
from homing.core.session import SessionKey

if TYPE_CHECKING:
    from homing.ext_proc.picker import Picker


def routes(picker: Picker, clock: Callable[[], float]) -> tuple[Route, ...]:
    async def get(request: Request) -> Response:
        asked = request.query_params
        session, tenant, size = asked.get("session", "").encode(), asked.get("tenant", "").encode(), asked.get("bytes")
        if not session:
            return Response("which session?\n", 400)
        key = SessionKey(tenant, b"", tenant + b"/").named(session)
        size_bytes = int(size) if size is not None and size.isdecimal() and size.isascii() else 0
        now = clock()
        model = asked.get("model")
        receipts = [
            explain(picker.placer, pool, key, now, size_bytes, pool.adapter(model)) for pool in _pools(picker, request)
        ]
        return Response(msgspec.json.encode(receipts), media_type="application/json")

    return (Route("/explain", get),)


def _pools(picker: Picker, request: Request) -> list[CompiledPool]:
    model, pool_id = request.query_params.get("model"), request.query_params.get("pool")
    if model:
        pool = picker.fleet.pool_for(model)
        return [pool] if pool is not None else []
    return [pool for known, pool in picker.fleet.by_id.items() if pool_id in (None, "", known)]
