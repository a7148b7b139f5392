import pytest

from homing.control.state import StateError
from homing.core.fleet import HealthChanged


def pool(service):
    return service.watch.membership.view.fleet.pools[0]


async def test_before_the_first_there_is_none(client):
    answer = (await client.get("/api/policy")).json()
    assert answer == {
        "now": {"version": 0, "at_s": 0.0, "who": "", "bypass": False, "pools": {}},
        "kept": True,
        "differences": [],
        "earlier": [],
    }


async def test_a_policy_is_in_the_fleet_at_once_and_in_the_audit_log(service, client):
    wanted = {"pools": {"p": {"mode": "route", "shares": {"r1": 0.1, "later": 0.5}}}}
    answer = (await client.put("/api/policy", json=wanted)).json()
    assert (answer["now"]["version"], answer["now"]["who"], answer["now"]["at_s"]) == (1, "127.0.0.1", 1000.0)
    assert answer["differences"] == [{"pool": "p", "policy": "a share for later", "holds": "it is not there"}]
    assert (pool(service).mode, [r.share for r in pool(service).replicas]) == ("route", [1.0, 0.1])
    service.watch.membership.apply(HealthChanged("p", "r1", True))
    assert pool(service).replicas[1].share == 0.1
    (entry,) = (await client.get("/api/audit")).json()["entries"]
    assert (entry["what"], "r1" in entry["details"]) == ("policy", True)


async def test_the_kill_switch_and_back(service, client):
    await client.put("/api/policy", json={"pools": {"p": {"mode": "observe"}}})
    await client.put("/api/policy", json={"bypass": True, "pools": {"p": {"mode": "observe"}}})
    assert pool(service).mode == "off"
    answer = (await client.post("/api/policy/rollback")).json()
    assert (answer["now"]["version"], answer["now"]["bypass"], pool(service).mode) == (3, False, "observe")
    answer = (await client.post("/api/policy/rollback", params={"version": 0})).json()
    assert (answer["now"]["version"], answer["now"]["pools"], pool(service).mode) == (4, {}, None)
    assert [p["version"] for p in answer["earlier"]] == [3, 2, 1]
    assert (await client.post("/api/policy/rollback", params={"version": 99})).status_code == 404


async def test_who_has_not_seen_the_newest_is_refused(service, client):
    await client.put("/api/policy", json={"bypass": True})
    refused = await client.put("/api/policy", json={"if_version": 0})
    assert (refused.status_code, refused.json()["detail"]) == (409, "policy 1 is in force: look at it first")
    assert pool(service).mode == "off"
    assert (await client.put("/api/policy", json={"if_version": 1})).status_code == 200


@pytest.mark.parametrize(
    "wanted",
    [
        {"pools": {"x": {"mode": "off"}}},
        {"pools": {"p": {"mode": "on"}}},
        {"pools": {"p": {"shares": {"r0": 1.5}}}},
        {"pools": {"p": {"shares": {"r0": -0.1}}}},
        {"pools": {"p": {"weight": 3}}},
        {"bypas": True},
    ],
)
async def test_what_is_none_is_refused_whole(service, client, wanted):
    assert (await client.put("/api/policy", json=wanted)).status_code == 422
    assert service.policies.all == ()


@pytest.fixture
def disk(service, monkeypatch):
    """Of the state: full, until what this gives is called."""

    async def full(_):
        raise StateError("disk full")

    with monkeypatch.context() as patch:
        for write in ("put_policy", "put_audit"):
            patch.setattr(service.state, write, full)
        yield patch.undo


async def test_what_cannot_be_kept_is_not_done(service, client, disk):
    wanted = {"bypass": True, "pools": {"p": {"mode": "observe"}}}
    answer = await client.put("/api/policy", json=wanted)
    assert (answer.status_code, answer.json()) == (503, {"detail": "disk full"})
    assert (await client.post("/api/policy/rollback", params={"version": 0})).status_code == 503
    assert (pool(service).mode, service.policies.now.version) == (None, 0)


async def test_the_kill_switch_works_though_it_cannot_be_kept_and_is_kept_once_it_can_be(service, client, disk):
    answer = (await client.put("/api/policy", json={"bypass": True, "if_version": 0})).json()
    assert (answer["kept"], answer["now"]["bypass"], answer["now"]["version"]) == (False, True, 0)
    assert pool(service).mode == "off"
    with pytest.raises(StateError):
        await service.policies.catch_up()
    with pytest.raises(StateError):
        await service.audit.catch_up()
    assert len((await client.get("/api/audit")).json()["entries"]) == 1
    disk()
    await service.audit.catch_up()
    await service.policies.catch_up()
    answer = (await client.get("/api/policy")).json()
    assert (answer["kept"], answer["now"]["bypass"], answer["now"]["version"]) == (True, True, 1)
    assert (answer["now"]["who"], pool(service).mode) == ("127.0.0.1", "off")
    assert len((await client.get("/api/audit")).json()["entries"]) == 1
    assert len(service.audit._unkept) == 0


async def test_what_was_kept_though_the_store_did_not_say_so_is_not_written_twice(service, client, disk):
    await client.put("/api/policy", json={"bypass": True})
    (entry,) = service.audit.all
    service.audit.restore((entry,))
    await service.audit.catch_up()  # the disk is full still
    assert service.audit.all == (entry,)


async def test_the_kill_switch_can_be_taken_back_before_it_was_kept(service, client, disk):
    await client.put("/api/policy", json={"bypass": True})
    answer = (await client.put("/api/policy", json={"bypass": False})).json()
    assert (answer["kept"], answer["now"]["bypass"], pool(service).mode) == (False, False, None)
