"""Plans by the API: what would move, with the sessions that the pickers know."""

import pytest

from homing.control.census import Left
from homing.core.fleet import HealthChanged

ADD = {"pool": "p", "id": "r2", "address": "10.0.0.3:80"}


@pytest.fixture
def well(service):
    for replica in ("r0", "r1"):
        service.watch.membership.apply(HealthChanged("p", replica, True))


async def test_a_plan_says_shares_and_sessions_and_changes_nothing(service, client, well):
    service.left = {("p", "r0"): Left(7, 1, certain=False), ("p", "r1"): Left(5, 0, certain=False)}
    before = service.watch.membership.view.fleet
    answer = await client.post("/api/plan", json={"add": [ADD], "remove": [{"pool": "p", "id": "r1"}]})
    (pool,) = answer.json()["pools"]
    assert (pool["pool"], pool["sessions"], pool["sessions_moved"], pool["sessions_draining"]) == ("p", 12, 5, 0)
    assert pool["hash_least"] == 0.5
    assert [share["replica"] for share in pool["shares"]] == ["r0", "r1", "r2"]
    assert [share["after"] == 0 for share in pool["shares"]] == [False, True, False]
    assert service.watch.membership.view.fleet == before
    assert service.audit.newest(10) == ()


async def test_without_pickers_only_shares_are_told(client, well):
    (pool,) = (await client.post("/api/plan", json={"drain": [{"pool": "p", "id": "r0"}]})).json()["pools"]
    assert (pool["sessions"], pool["sessions_moved"], pool["hash_moved"]) == (None, None, 0.0)


async def test_nothing_to_change_is_an_empty_plan(client):
    assert (await client.post("/api/plan", json={})).json() == {"pools": []}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"remove": [{"pool": "p", "id": "x"}]}, "there is no replica x in the pool p"),
        ({"add": [ADD | {"id": "r0"}]}, "already"),
        ({"add": [ADD | {"address": "nowhere"}]}, "host:port"),
        ({"add": [ADD | {"weight": 0}]}, "an integer from 1 to 128"),
        ({"moved": []}, "moved"),
    ],
)
async def test_what_cannot_be_planned_is_422_and_says_why(client, well, body, why):
    answer = await client.post("/api/plan", json=body)
    assert answer.status_code == 422
    assert why in answer.text
    assert "pydantic" not in answer.text
