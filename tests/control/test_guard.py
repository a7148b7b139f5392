"""Who may ask the API, and who may write: by tokens, certificates, and from where."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from homing.control.guard import Guard
from homing.control.tokens import TokenCheck
from homing.core.config.secret import SecretRef
from homing.core.config.tls import Tokens

ADMIN, FLEET = "an-admin-s-token-of-this-test", "a-fleet-s-token-of-this-test"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "admin").write_text(f"{ADMIN}\n")
    (tmp_path / "fleet").write_text(FLEET)
    return tmp_path / "homing.yaml"


BOTH = Tokens(admin=SecretRef("file", "admin"), fleet=SecretRef("file", "fleet"))


async def status(place: Path, method: str, path: str, shows: str = "", peer: str = "10.0.0.9", mutual: bool = False,
                 tokens: Tokens = BOTH) -> int:  # fmt: skip
    app = FastAPI(openapi_url=None, docs_url=None)

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
    async def anything(path: str) -> str:
        return path

    app.add_middleware(Guard, tokens=TokenCheck(lambda: tokens, place), mutual=mutual)
    transport = httpx.ASGITransport(app=app, client=(peer, 1))
    headers = {"authorization": f"Bearer {shows}"} if shows else {}
    async with httpx.AsyncClient(transport=transport, base_url="http://homing-control:8600") as client:
        answer = await client.request(method, path, headers=headers)
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "is asked for" in answer.json()["detail"]
    return answer.status_code


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_and_scrapers_need_nothing(place, path):
    assert await status(place, "GET", path) == 200


@pytest.mark.parametrize("path", ["/api/fleet", "/api/feed", "/api/sessions/s", "/", "/docs", "/openapi.json"])
async def test_reading_from_elsewhere_needs_a_token(place, path):
    assert await status(place, "GET", path) == 401
    assert await status(place, "GET", path, "wrong") == 401
    assert await status(place, "GET", path, FLEET) == 200
    assert await status(place, "GET", path, ADMIN) == 200


async def test_reading_from_this_machine_or_with_a_certificate_needs_none(place):
    assert await status(place, "GET", "/api/fleet", peer="127.0.0.1") == 200
    assert await status(place, "GET", "/api/fleet", peer="::1") == 200
    assert await status(place, "GET", "/api/fleet", mutual=True) == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(("peer", "mutual"), [("10.0.0.9", False), ("127.0.0.1", False), ("10.0.0.9", True)])
async def test_writing_needs_the_admin_s_token_from_wherever(place, method, peer, mutual):
    path = "/api/pools/p/replicas/r/drain"
    for shown in ("", "wrong", FLEET):
        assert await status(place, method, path, shown, peer, mutual) == 401
    assert await status(place, method, path, ADMIN, peer, mutual) == 200


async def test_asking_for_a_plan_is_reading(place):
    assert await status(place, "POST", "/api/plan", FLEET) == 200
    assert await status(place, "POST", "/api/plan") == 401


async def test_a_token_that_is_replaced_counts_at_once(place):
    assert await status(place, "GET", "/api/fleet", FLEET) == 200
    (place.parent / "fleet").write_text("another-token-of-this-test")
    assert await status(place, "GET", "/api/fleet", FLEET) == 401
    assert await status(place, "GET", "/api/fleet", "another-token-of-this-test") == 200


@pytest.mark.parametrize("content", ["", "short", "n\u00e4chstes Geheimnis, lang genug"])
async def test_a_token_that_cannot_be_used_is_nobody_s(place, content):
    (place.parent / "admin").write_text(content)
    assert await status(place, "POST", "/api/x", content.strip() and "short") == 401
    (place.parent / "admin").unlink()
    assert await status(place, "POST", "/api/x", ADMIN) == 401


async def test_without_an_admin_s_token_writes_are_left_to_the_routes(place):
    assert await status(place, "POST", "/api/x", peer="127.0.0.1", tokens=Tokens()) == 200
    assert await status(place, "POST", "/api/x", peer="127.0.0.1", tokens=replace_admin(BOTH)) == 200


def replace_admin(tokens: Tokens) -> Tokens:
    return tokens.model_copy(update={"admin": None})


async def test_with_the_token_a_write_may_come_under_any_name(service, client, monkeypatch):
    """The name and the origin are looked at for want of a token only."""
    monkeypatch.setenv("HOMING_TEST_ADMIN", ADMIN)
    path, elsewhere = "/api/pools/p/replicas/r0/drain", {"host": "homing-control:8600", "origin": "https://x.test"}
    assert (await client.post(path, headers=elsewhere)).status_code == 403
    view = service.watch.membership.view
    tokens = Tokens(admin=SecretRef("env", "HOMING_TEST_ADMIN"))
    service.watch.membership.configure(view.config.model_copy(update={"tokens": tokens}))
    assert (await client.post(path, headers=elsewhere)).status_code == 401
    shown = elsewhere | {"authorization": f"Bearer {ADMIN}"}
    assert (await client.post(path, headers=shown)).status_code == 200


def test_tokens_that_cannot_be_read_are_said_before_somebody_is_refused(tmp_path, caplog):
    (tmp_path / "good").write_text("a token of some length")
    named = Tokens(admin=SecretRef("env", "HOMING_NO_SUCH_TOKEN"), fleet=SecretRef("file", "good"))
    TokenCheck(lambda: named, tmp_path / "homing.yaml").say_what_is_missing()
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("nobody can show this token: ")
    assert "HOMING_NO_SUCH_TOKEN" in said
