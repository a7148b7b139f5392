"""Cookies and signed ids through real Envoy: given, proved, refused, and what is left when no picker runs."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.gateways import KINDS, Gateway, Kind, gateway
from e2e.stack import SimulatedPool, until

pytestmark = pytest.mark.e2e

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
BROWSER = {"user-agent": "Mozilla/5.0 (X11)"}


@pytest.fixture(scope="module")
def short(short_directory: Path) -> Path:
    for name in ("one", "two"):
        key = short_directory / f"key-{name}"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(16))
    return short_directory


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module")
def cookies(short: Path, kind: Kind) -> Iterator[Gateway]:
    sessions = {"cookie": {"secret": f"file:{short}/key-one", "secure": False, "name": "sid"}, "history": False}
    with gateway(kind, short / "c", (SimulatedPool("p", "m", 4),), {"sessions": sessions}) as stack:
        yield stack


@pytest.fixture(scope="module")
def signing(short: Path, kind: Kind) -> Iterator[Gateway]:
    sessions = {"signed": {"keys": [f"file:{short}/key-one"]}}
    with gateway(kind, short / "s", (SimulatedPool("p", "m", 4),), {"sessions": sessions}) as stack:
        yield stack


def turn(stack: Gateway, client: httpx.Client | None = None, **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{stack.url}/v1/chat/completions"
    if client is not None:
        return client.post(url, json=BODY, headers=sent)
    return httpx.post(url, json=BODY, headers=sent, trust_env=False, timeout=10)


def test_browsers_stay_home_by_their_cookie(cookies: Gateway) -> None:
    for _ in range(4):
        with httpx.Client(trust_env=False, headers=BROWSER, timeout=10) as browser:
            first = turn(cookies, browser)
            assert "HttpOnly; SameSite=Lax" in first.headers["set-cookie"]
            assert first.headers["x-homing-decision"] == "new"
            browser.cookies.set("theme", "dark")
            for _ in range(3):
                again = turn(cookies, browser)
                assert again.headers["x-homing-decision"] == "home"
                assert again.headers["x-homing-replica"] == first.headers["x-homing-replica"]
                assert again.headers["x-session-id"] == first.headers["x-session-id"]
                assert "set-cookie" not in again.headers


def test_programs_get_no_cookie_and_a_header_counts_first(cookies: Gateway) -> None:
    assert "set-cookie" not in turn(cookies).headers
    given = turn(cookies, x_session_id="chosen", **{"user-agent": "Mozilla/5.0"})
    assert "set-cookie" not in given.headers
    cookie = turn(cookies, **BROWSER).headers["set-cookie"].partition(";")[0]
    assert turn(cookies, cookie=cookie, x_session_id="chosen").headers["x-session-id"] == "chosen"


@pytest.mark.parametrize(
    "odd", ["sid=", "sid=a", "sid=a-b-c", "sid=uuid-1-ffffffff-" + "0" * 32, "sid==;;=,", "sid=\xff-1-1"]
)
def test_a_cookie_that_proves_wrong_is_no_error(cookies: Gateway, odd: str) -> None:
    answer = httpx.post(
        f"{cookies.url}/v1/chat/completions",
        json=BODY,
        headers=[(b"cookie", odd.encode("latin-1")), (b"user-agent", b"Mozilla/5.0")],
        trust_env=False,
        timeout=10,
    )
    assert (answer.status_code, answer.headers["x-homing-decision"]) == (200, "new")
    assert answer.headers["set-cookie"].startswith("sid=")


def test_ids_that_homing_signed_come_home(signing: Gateway) -> None:
    for _ in range(4):
        first = turn(signing)
        session = first.headers["x-session-id"]
        for _ in range(3):
            again = turn(signing, x_session_id=session)
            assert again.headers["x-homing-decision"] == "home"
            assert again.headers["x-homing-replica"] == first.headers["x-homing-replica"]


def test_others_are_refused_in_openais_shape(signing: Gateway) -> None:
    session = turn(signing).headers["x-session-id"]
    for odd in ("chosen", session[:-1], session + "0", "0" + session, "x" * 20_000):
        answer = turn(signing, x_session_id=odd)
        assert answer.status_code == 401
        assert answer.json()["error"] == {
            "message": "The session id was not issued here, was changed, or has expired.",
            "type": "AuthenticationError",
            "param": None,
            "code": 401,
        }
    assert signing.metric("homing_rejected_total", reason="session") == 5


def test_every_id_that_comes_back_is_taken(signing: Gateway) -> None:
    listed = httpx.get(f"{signing.url}/v1/models", trust_env=False)
    begun = httpx.post(f"{signing.url}/invocations", json={"requestType": "NEW_SESSION"}, trust_env=False)
    named = begun.headers["x-amzn-sagemaker-new-session-id"].partition(";")[0]
    assert named == begun.headers["x-session-id"]
    for session in (listed.headers["x-session-id"], named):
        assert turn(signing, x_session_id=session).status_code == 200


def test_without_pickers_cookies_and_signed_ids_still_lead_home(cookies: Gateway, signing: Gateway) -> None:
    """Nobody proves them then: it fails open."""
    cookie = turn(cookies, **BROWSER)
    session = turn(signing)
    for stack in (cookies, signing):
        for name in stack.picker_http:
            stack.processes.signal(name, signal.SIGKILL)
        until(lambda stack=stack: stack.pickers_in_service() <= 0, 10, "no picker to run")
    for _ in range(3):
        sent = cookie.headers["set-cookie"].partition(";")[0]
        again = turn(cookies, cookie=sent, **BROWSER)
        assert again.headers["x-homing-replica"] == cookie.headers["x-homing-replica"]
        again = turn(signing, x_session_id=session.headers["x-session-id"])
        assert again.headers["x-homing-replica"] == session.headers["x-homing-replica"]
    assert turn(signing, x_session_id="chosen").status_code == 200
