"""Who a request is of, by headers, cookie and signature."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from picking import FLEET, Picking

from homing.core.config import parse
from homing.core.seal import Seal
from homing.ext_proc.events import HeadersAnswer, Reject, RequestHeadersReceived
from homing.ext_proc.exchange import Exchange
from homing.ext_proc.identity import Seals
from homing.ext_proc.picker import CONVERSATION_PATHS

KEY = b"sixteen bytes or more"
POOLS = "pools: {p: {served_name: served, replicas: [{id: a, address: '127.0.0.1:1'}]}}\n"
BROWSER = {"user_agent": b"Mozilla/5.0"}


def picker_of(sessions: str, *, cookie: bool = False, signed: bool = False, history: bool = False) -> Picking:
    picking = Picking(FLEET)
    cookie_seal, signed_seal = Seal((KEY,), b"cookie", 86_400.0), Seal((KEY,), b"session", 60.0)
    seals = Seals(cookie_seal if cookie else None, signed_seal if signed else None)
    more = f"tenants: {{header: x-tenant, trusted: true}}\nsessions: {{history: {str(history).lower()}, {sessions}}}\n"
    picking.picker.configure(parse(POOLS + more, "f"), seals)
    return picking


@pytest.fixture
def cookies() -> Picking:
    return picker_of("cookie: {secret: 'env:KEY', name: sid}", cookie=True)


@pytest.fixture
def signing() -> Picking:
    return picker_of("signed: {keys: ['env:KEY']}", signed=True)


def told(picking: Picking, session: bytes, *, given: bool = False, **headers: bytes) -> dict[str, bytes]:
    return dict(picking.route(session, given=given, **headers).set_headers)


def digest(told: dict[str, bytes]) -> bytes:
    return told["x-homing-ref"].partition(b":")[0]


def value(set_cookie: bytes) -> bytes:
    found = re.fullmatch(rb"sid=([\w-]+); Max-Age=86400; Path=/; HttpOnly; SameSite=Lax; Secure", set_cookie)
    assert found is not None
    return found[1]


def session_in(cookie: bytes) -> bytes:
    """What Envoy takes for the id."""
    return cookie.rsplit(b"-", 2)[0]


def test_a_browser_gets_a_cookie_that_leads_home(cookies: Picking):
    first = told(cookies, b"uuid", **BROWSER)
    cookie = value(first["x-homing-set-cookie"])
    assert session_in(cookie) == first["x-session-id"]
    again = told(cookies, session_in(cookie), given=True, x_homing_cookie=cookie, **BROWSER)
    assert (again["x-homing-decision"], digest(again)) == (b"home", digest(first))
    assert "x-homing-set-cookie" not in again


def test_who_sends_a_header_or_is_no_browser_gets_no_cookie(cookies: Picking):
    assert "x-homing-set-cookie" not in told(cookies, b"s", given=True, **BROWSER)
    for agent in (b"", b"openai-python", b"curl Mozilla/5.0"):
        assert "x-homing-set-cookie" not in told(cookies, b"uuid", user_agent=agent)


def test_half_of_its_time_over_a_cookie_is_given_anew(cookies: Picking):
    cookie = value(told(cookies, b"uuid", **BROWSER)["x-homing-set-cookie"])
    session = session_in(cookie)
    cookies.wall += 43_201
    renewed = told(cookies, session, given=True, x_homing_cookie=cookie, **BROWSER)
    assert session_in(value(renewed["x-homing-set-cookie"])) == session
    assert renewed["x-homing-decision"] == b"home"


@pytest.mark.parametrize("change", ["tampered", "expired", "tenant", "other id"])
def test_a_cookie_that_proves_wrong_is_a_new_session(cookies: Picking, change: str):
    first = told(cookies, b"uuid", **BROWSER)
    cookie = value(first["x-homing-set-cookie"])
    headers = {"x_homing_cookie": cookie, "given": True, **BROWSER}
    session = session_in(cookie)
    match change:
        case "tampered":
            headers["x_homing_cookie"] = cookie[:-1] + (b"0" if cookie[-1:] != b"0" else b"1")
        case "expired":
            cookies.wall += 86_400
        case "tenant":
            headers["x_tenant"] = b"acme"
        case "other id":
            session = b"other"
    again = told(cookies, session, **headers)
    assert again["x-homing-decision"] == b"new"
    assert again["x-session-id"].startswith(b"fresh-")
    assert session_in(value(again["x-homing-set-cookie"])) == again["x-session-id"]


def test_ids_are_issued_signed_and_taken_back(signing: Picking):
    first = told(signing, b"uuid", x_tenant=b"acme")
    session = first["x-session-id"]
    assert re.fullmatch(rb"uuid-[0-9a-f]+-[0-9a-f]{5,}-[0-9a-f]{32}", session)
    assert first["x-homing-key"] == b"acme/" + session
    again = told(signing, session, given=True, x_tenant=b"acme")
    assert (again["x-homing-decision"], digest(again)) == (b"home", digest(first))


@pytest.mark.parametrize("change", ["own", "tampered", "expired", "tenant"])
def test_an_id_that_was_not_issued_to_this_client_is_refused(signing: Picking, change: str):
    session, before = told(signing, b"uuid", x_tenant=b"acme")["x-session-id"], signing.in_flight()
    tenant = b"acme"
    match change:
        case "own":
            session = b"chosen"
        case "tampered":
            session = b"uuid-0" + session[6:] if session[:6] != b"uuid-0" else b"uuid-1" + session[6:]
        case "expired":
            signing.wall += 60
        case "tenant":
            tenant = b"other"
    headers = {
        "x-session-id": session,
        "x-homing-given": b"1",
        "x-homing-key": tenant + b"/" + session,
        "x-tenant": tenant,
    }
    exchange = Exchange(signing.picker)
    answer = exchange.receive(RequestHeadersReceived(headers, "served"))
    assert answer == Reject(401, "The session id was not issued here, was changed, or has expired.")
    exchange.close()
    assert signing.picker.counts.rejected == {"session": 1}
    assert signing.in_flight() == before


def test_what_is_not_placed_gets_a_signed_id_too(signing: Picking):
    """A list of models, SageMaker's request for a session: the client may go on with the id."""
    listed = told(signing, b"uuid", model="nope", x_homing_expires=b"2026-01-31T12:00:00Z")
    session = listed["x-session-id"]
    assert listed["x-homing-key"] == b"/" + session
    assert listed["x-homing-new-session"] == session + b"; Expires=2026-01-31T12:00:00Z"
    assert told(signing, session, given=True)["x-homing-decision"] == b"hash"


def test_where_ids_are_signed_the_body_names_nothing():
    picker = picker_of("signed: {keys: ['env:KEY']}", signed=True, history=True).picker
    said = picker.placing.read(picker.fleet.by_id["p"], picker.identity.of({}).key, b'{"session_id": "x"}')
    assert said.session is None


def test_what_is_issued_for_cookies_is_no_signed_id():
    both = picker_of("cookie: {secret: 'env:KEY', name: sid}, signed: {keys: ['env:KEY']}", cookie=True, signed=True)
    first = told(both, b"uuid", **BROWSER)
    cookie = value(first["x-homing-set-cookie"])
    again = told(both, session_in(cookie), given=True, x_homing_cookie=cookie, **BROWSER)
    assert again["x-homing-decision"] == b"home"
    answer = Exchange(both.picker).receive(
        RequestHeadersReceived(
            {"x-session-id": cookie, "x-homing-given": b"1", "x-homing-key": b"/" + cookie}, "served"
        )
    )
    assert isinstance(answer, Reject)


HEADERS = (
    "x-session-id", "x-homing-key", "x-homing-given", "x-homing-cookie", "x-tenant", "user-agent", "x-session-close",
    "x-homing-learn", "x-homing-expires", "x-homing-model", "x-homing-odd", "content-length",
)  # fmt: skip
TELLING = (b"", b"true", b"1", b"-1", b"1_0", b"\xb2", b"9" * 20, b"Mozilla/5.0", b"a-1-" + b"0" * 32, b"\xff")
PATHS = (b"", b"/v1/responses/resp_1/cancel", b"/v1/models", *CONVERSATION_PATHS)
PICKERS = {
    "plain": lambda: Picking(FLEET, tenant_header="x-tenant"),
    "cookie": lambda: picker_of("cookie: {secret: 'env:KEY'}", cookie=True),
    "signed": lambda: picker_of("signed: {keys: ['env:KEY']}", signed=True),
}


@given(
    st.dictionaries(st.sampled_from(HEADERS), st.sampled_from(TELLING) | st.binary(max_size=400)),
    st.sampled_from(PATHS) | st.binary(max_size=80),
    st.sampled_from(["served", "alias", "nope", None]),
    st.booleans(),
    st.sampled_from(sorted(PICKERS)),
)
@example(
    {"user-agent": b"Mozilla/5.0", "x-session-id": b"\xff", "x-homing-key": b"/\xff"}, b"", "served", True, "cookie"
)
def test_no_bytes_in_any_header_raise(
    headers: dict[str, bytes], path: bytes, model: str | None, has_body: bool, kind: str
):
    exchange = Exchange(PICKERS[kind]().picker)
    answer = exchange.receive(RequestHeadersReceived({**headers, ":path": path}, model, None, has_body))
    assert isinstance(answer, HeadersAnswer | Reject)
    exchange.close()
