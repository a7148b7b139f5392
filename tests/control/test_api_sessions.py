"""Sessions by the API: what the pickers say, put together."""

import httpx
import msgspec
import pytest

from homing.control.picker_sessions import Answers, PickerSessions, merged
from homing.core.config import parse
from homing.core.known import Known, KnownSessions

ONE, TWO = Known("01", "p", "a", 3.0, True), Known("02", "p", "b", 1.0, False)


def test_what_pickers_say_is_put_together_the_last_word_counts():
    moved = Known("01", "p", "b", 0.5, False)
    elsewhere = Known("01", "q", "a", 9.0)
    answers = [KnownSessions(7, (ONE, TWO)), KnownSessions(9, (moved, elsewhere))]
    assert merged(answers) == Answers((moved, TWO, elsewhere), 9, complete=True)


def test_a_picker_that_does_not_answer_leaves_doubt():
    assert merged([KnownSessions(1, (ONE,)), None]) == Answers((ONE,), 1, complete=False)
    assert merged([]) == Answers((), 0, complete=True)


async def test_what_is_no_answer_is_none(http_replies):
    good = await http_replies(msgspec.json.encode(KnownSessions(1, (ONE,))))
    bad = await http_replies(b"<html>")
    async with PickerSessions({"good": good, "bad": bad, "none": "127.0.0.1:1"}, timeout_s=2) as pickers:
        assert await pickers.look_up("s", "", "") == Answers((ONE,), 1, complete=False)


async def test_pickers_are_shown_the_token():
    async with PickerSessions({"one": "10.0.0.1:1", "two": "unix:/x"}, token="secret") as pickers:
        assert {each.headers["authorization"] for each in pickers._clients.values()} == {"Bearer secret"}


@pytest.fixture
async def client(homing_yaml, http_replies, make_service):
    """Of a service whose one picker knows two sessions."""
    picker = await http_replies(msgspec.json.encode(KnownSessions(5, (ONE, TWO))))
    made = make_service(parse(homing_yaml("10.0.0.1:80"), "homing.yaml"), {"picker": picker})
    transport = httpx.ASGITransport(app=made.app)
    async with made.sessions, httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8600") as client:
        yield client
    await made.state.close()


SHOWN = [
    {"session": "02", "pool": "p", "replica": "b", "idle_s": 1.0, "pinned": False},
    {"session": "01", "pool": "p", "replica": "a", "idle_s": 3.0, "pinned": True},
]


async def test_sessions_are_listed_the_ones_used_last_first(client):
    assert (await client.get("/api/sessions")).json() == {"sessions": SHOWN, "total": 5, "complete": True}
    assert (await client.get("/api/sessions", params={"limit": 1})).json()["sessions"] == SHOWN[:1]
    assert (await client.get("/api/sessions", params={"limit": 0})).status_code == 422


async def test_an_end_is_answered_with_where_the_session_lived_and_audited_by_its_hashes(client):
    answer = await client.delete("/api/sessions/c1%2Fa1", params={"tenant": "acme"})
    assert answer.json()["sessions"] == SHOWN
    (entry,) = (await client.get("/api/audit")).json()["entries"]
    assert (entry["what"], entry["target"]) == ("close session", "01 02")
    assert "c1" not in str(entry)


async def test_a_page_of_another_site_ends_nothing(client):
    answer = await client.delete("/api/sessions/s", headers={"origin": "http://elsewhere.example"})
    assert answer.status_code == 403
    assert (await client.get("/api/audit")).json()["entries"] == []
