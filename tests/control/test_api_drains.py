"""Drains by the API, who may ask for them, and what is remembered of it."""

import asyncio

import pytest

from homing.control.census import Left
from homing.core.config import parse
from homing.core.fleet import State

DRAIN = "/api/pools/p/replicas/r0/drain"


def state(service):
    return service.watch.membership.view.fleet.pools[0].replica("r0").state


async def test_a_drain_is_answered_at_once_and_shown(service, client, until):
    answer = await client.post(DRAIN, params={"deadline_s": 60})
    assert answer.json() == {
        "pool": "p",
        "replica": "r0",
        "state": "draining",
        "since_s": 1000.0,
        "deadline_s": 1060.0,
        "sessions": None,
        "streams": None,
        "ended_s": None,
        "why": None,
        "moved": None,
        "rank": None,
    }
    assert state(service) is State.DRAINING
    service.left = {("p", "r0"): Left(3, 1, certain=True)}
    await until(lambda: service.drains.left)
    (shown,) = (await client.get("/api/drains")).json()["drains"]
    assert (shown["sessions"], shown["streams"]) == (3, 1)


async def test_the_answer_says_what_is_left_there_where_the_pickers_know(service, client):
    service.left = {("p", "r0"): Left(3, 1, certain=True)}
    answer = (await client.post(DRAIN, params={"deadline_s": 60})).json()
    assert (answer["sessions"], answer["streams"]) == (3, 1)


async def test_who_waits_is_answered_when_it_has_left(service, client):
    asked = asyncio.create_task(client.post(DRAIN, params={"deadline_s": 60, "wait_s": 30}))
    await asyncio.sleep(0.05)
    assert not asked.done()
    service.left = {("p", "r0"): Left(0, 0, certain=True)}
    answer = (await asked).json()
    assert (answer["state"], answer["why"], answer["moved"], answer["ended_s"]) == ("left", "idle", 0, 1000.0)


async def test_a_replica_may_be_named_by_its_address(service, client):
    answer = await client.post("/api/pools/p/replicas/10.0.0.1:80/drain")
    assert (answer.status_code, answer.json()["replica"]) == (200, "r0")


@pytest.mark.parametrize("name", ["10.0.0.9:80", "g"])
async def test_an_address_with_several_ranks_drains_as_a_whole(service, client, until, homing_yaml, name):
    ranks = "    - {id: g, address: 10.0.0.9:80, dp_size: 2}\n"
    text = homing_yaml("10.0.0.1:80").replace("health:", f"{ranks}health:")
    service.watch.membership.configure(parse(text, "homing.yaml"))
    service.left = {("p", "g-0"): Left(0, 0, certain=True), ("p", "g-1"): Left(3, 1, certain=True)}
    path = f"/api/pools/p/replicas/{name}/drain"
    begun = (await client.post(path, params={"deadline_s": 60})).json()
    assert (begun["replica"], begun["state"], begun["rank"], begun["deadline_s"]) == (name, "draining", None, 1060.0)
    await until(lambda: service.drains.get(("p", "g-0")).ended_s)
    half = (await client.post(path, params={"deadline_s": 60})).json()
    assert (half["state"], half["sessions"], half["streams"], half["ended_s"]) == ("draining", 3, 1, None)
    service.left = {("p", "g-1"): Left(0, 0, certain=True)}
    ended = (await client.post(path, params={"deadline_s": 60, "wait_s": 30})).json()
    assert (ended["state"], ended["why"], ended["moved"], ended["ended_s"]) == ("left", "idle", 0, 1000.0)
    undrain = path.replace("/drain", "/undrain")
    assert (await client.post(undrain)).json() == {"was_draining": True}
    assert (await client.get("/api/drains")).json() == {"drains": []}


async def test_a_drain_is_taken_back(service, client):
    await client.post(DRAIN)
    assert (await client.post("/api/pools/p/replicas/r0/undrain")).json() == {"was_draining": True}
    assert (await client.post("/api/pools/p/replicas/r0/undrain")).json() == {"was_draining": False}
    assert (await client.get("/api/drains")).json() == {"drains": []}


@pytest.mark.parametrize("path", ["/api/pools/p/replicas/x/drain", "/api/pools/x/replicas/r0/undrain"])
async def test_what_is_not_there_is_404(client, path):
    answer = await client.post(path)
    assert (answer.status_code, answer.json()["detail"].startswith("there is no replica")) == (404, True)


@pytest.mark.parametrize("deadline_s", [-1, 1e9, "soon"])
async def test_odd_deadlines_are_refused(client, deadline_s):
    assert (await client.post(DRAIN, params={"deadline_s": deadline_s})).status_code == 422


async def test_writes_are_in_the_audit_log_the_newest_first(client):
    await client.post(DRAIN, params={"deadline_s": 60})
    await client.post("/api/pools/p/replicas/r0/undrain")
    entries = (await client.get("/api/audit")).json()["entries"]
    assert entries == [
        {"at_s": 1000.0, "who": "127.0.0.1", "what": "undrain", "target": "p/r0", "details": ""},
        {"at_s": 1000.0, "who": "127.0.0.1", "what": "drain", "target": "p/r0", "details": "deadline_s=60"},
    ]
    assert len((await client.get("/api/audit", params={"limit": 1})).json()["entries"]) == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8600"}, 200),
        ({"host": "[::1]:8600"}, 200),
        ({"origin": "http://127.0.0.1:8600"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "10.0.0.1:8600"}, 403),
        ({"host": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
    ],
)
async def test_pages_of_other_sites_may_not_write(service, client, headers, status):
    answer = await client.post(DRAIN, headers=headers)
    assert answer.status_code == status
    assert (state(service) is State.DRAINING) == (status == 200)


async def test_what_cannot_be_kept_is_not_done(service, client):
    service.state._connection.execute("DROP TABLE audit")
    answer = await client.post(DRAIN)
    assert (answer.status_code, answer.json()) == (
        503,
        {"detail": "the state cannot be written: no such table: audit"},
    )
    assert state(service) is State.JOINING
