"""What a picker tells of its sessions by HTTP, and how one is ended there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from picking import TABLE, Picking
from starlette.applications import Starlette

from homing.core.known import Known, KnownSessions
from homing.core.session import SessionKey
from homing.ext_proc.sessions import MAX_LISTED, routes


@pytest.fixture
def picking() -> Picking:
    return Picking(tenant_header="x-tenant")


@pytest.fixture
async def client(picking: Picking) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=list(routes(picking.picker, lambda: picking.now)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://picker") as client:
        yield client


async def asked(client: httpx.AsyncClient, method: str = "GET", **query: str) -> KnownSessions:
    answer = await client.request(method, "/sessions", params=query)
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=KnownSessions)


async def test_a_session_is_found_by_its_id_in_every_pool_that_knows_it(picking: Picking, client: httpx.AsyncClient):
    refs = [dict(picking.route(b"c1/a1", model).set_headers)["x-homing-ref"] for model in ("served", "other")]
    picking.now = 12.5
    owner = TABLE.owner(b"/c1/a1")
    assert owner is not None
    found = await asked(client, session="c1/a1")
    assert found.total == 2
    assert found.sessions == tuple(
        Known(ref.decode().partition(":")[0], pool, owner.id, 12.5, pinned=False)
        for ref, pool in zip(refs, "pq", strict=True)
    )
    assert [known.pool for known in (await asked(client, session="c1/a1", pool="q")).sessions] == ["q"]
    assert (await asked(client, session="c1")).sessions == ()


async def test_a_session_away_from_its_hash_is_pinned(picking: Picking, client: httpx.AsyncClient):
    picking.route()
    owner = TABLE.owner(b"/s")
    assert owner is not None
    ((known),) = (await asked(client, session="s")).sessions
    digest = bytes.fromhex(known.session)
    other = next(r.id for r in TABLE.members if r.id != owner.id)
    picking.picker.placer.homes.put(digest, other, 0.0)
    ((known),) = (await asked(client, session="s")).sessions
    assert (known.replica, known.pinned) == (other, True)


async def test_a_list_shows_hashes_only(picking: Picking, client: httpx.AsyncClient):
    for n in range(5):
        picking.route(b"secret-%d" % n)
    text = (await client.get("/sessions")).text
    assert "secret" not in text
    found = msgspec.json.decode(text, type=KnownSessions)
    assert (found.total, len(found.sessions), {k.pool for k in found.sessions}) == (5, 5, {"p"})
    assert len((await asked(client, limit="2")).sessions) == 2
    for limit in ("-1", "x", "\u0665", str(MAX_LISTED + 1)):
        assert len((await asked(client, limit=limit)).sessions) == 5
    assert (await asked(client, pool="q")).sessions == ()


async def test_a_session_that_is_ended_is_forgotten(picking: Picking, client: httpx.AsyncClient):
    picking.route()
    assert len((await asked(client, "DELETE", session="s")).sessions) == 1, "it says where the session lived"
    assert (await asked(client, session="s")).sessions == ()
    assert (await asked(client, "DELETE", session="s")).sessions == ()
    assert picking.picker.counts.closed == {"api": 1}


async def test_with_a_session_ends_what_is_remembered_of_its_texts(picking: Picking, client: httpx.AsyncClient):
    bodies = picking.picker.bodies
    bodies.sessions.limit(100.0, 10)
    for session in (b"s", b"t"):
        bodies.sessions.put(SessionKey(b"", session, b"").digest("", bodies.secret), (), 0.0)
    await asked(client, "DELETE", session="s")
    assert len(bodies.sessions) == 1


async def test_only_the_tenant_that_is_named_is_meant(picking: Picking, client: httpx.AsyncClient):
    picking.route(x_tenant=b"acme")
    for tenant in ("", "other", "acme/"):
        assert (await asked(client, session="s", tenant=tenant)).sessions == ()
        assert (await asked(client, "DELETE", session="s", tenant=tenant)).sessions == ()
    assert len((await asked(client, session="s", tenant="acme")).sessions) == 1
    assert len((await asked(client, "DELETE", session="s", tenant="acme")).sessions) == 1


async def test_an_end_needs_a_session(client: httpx.AsyncClient):
    assert (await client.delete("/sessions")).status_code == 400


async def test_an_idle_session_is_not_shown(picking: Picking, client: httpx.AsyncClient):
    picking.route()
    picking.now = 100.0
    assert (await asked(client, session="s")).sessions == ()
    assert (await asked(client)).sessions == ()
