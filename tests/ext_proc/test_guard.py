"""Who may ask a picker about sessions by HTTP."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from homing.ext_proc.guard import guarded


async def status(
    client: tuple[str, int] | None, token: str | None = "token", method: str = "DELETE", **headers: str
) -> int:
    async def ended(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ended")

    app = Starlette(routes=list(guarded([Route("/sessions", ended, methods=["DELETE"])], token)))
    transport = httpx.ASGITransport(app, client=client)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://picker", headers=headers) as asking:
        return (await asking.request(method, "/sessions")).status_code


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("::1", 1), ("", 0), None])
async def test_this_machine_may(client: tuple[str, int] | None):
    assert await status(client) == 200
    assert await status(client, token=None) == 200


@pytest.mark.parametrize("client", [("10.0.0.7", 1), ("fe80::1", 1), ("testclient", 1)])
async def test_another_may_with_the_token(client: tuple[str, int]):
    assert await status(client, authorization="Bearer token") == 200
    for said in ("Bearer tokens", "Bearer toke", "token", "Bearer ", ""):
        assert await status(client, authorization=said) == 401
    assert await status(client, token=None, authorization="Bearer None") == 401


async def test_methods_stay_as_they_were():
    assert await status(("127.0.0.1", 1), method="GET") == 405
