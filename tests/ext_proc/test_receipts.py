"""What a picker says by HTTP of where a session's next turn would go."""

from __future__ import annotations

from dataclasses import replace

import httpx
import msgspec
import pytest
from picking import OTHER, POOL, REPLICAS, Picking
from starlette.applications import Starlette

from homing.core.fleet import Fleet
from homing.core.placement.explain import Receipt
from homing.ext_proc.receipts import routes


async def asked(picking: Picking, **query: str) -> httpx.Response:
    app = Starlette(routes=list(routes(picking.picker, lambda: picking.now)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://picker") as client:
        return await client.get("/explain", params=query)


async def receipts(picking: Picking, **query: str) -> list[Receipt]:
    answer = await asked(picking, **query)
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=list[Receipt])


@pytest.mark.parametrize(
    ("query", "pools"),
    [({}, ["p", "q"]), ({"model": "served"}, ["p"]), ({"pool": "q"}, ["q"]), ({"model": "nobodys"}, [])],
)
async def test_every_pool_is_told_of_or_the_one_that_is_asked_for(query: dict[str, str], pools: list[str]):
    assert [receipt.pool for receipt in await receipts(Picking(), session="s", **query)] == pools


async def test_of_a_lora_adapter_only_those_that_have_it_are_told():
    replicas = tuple(replace(r, adapters=("tuned",) if r.id == "gpu-2" else ("other",)) for r in REPLICAS)
    picking = Picking(Fleet((replace(POOL, replicas=replicas), OTHER)))
    (receipt,) = await receipts(picking, session="s", model="tuned")
    assert (receipt.pool, receipt.choice, [offer.replica for offer in receipt.offers]) == ("p", "gpu-2", ["gpu-2"])


async def test_without_a_session_there_is_nothing_to_say():
    assert (await asked(Picking())).status_code == 400
