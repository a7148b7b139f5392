"""Registration by the API, and where the sources of membership are shown."""

import pytest

from homing.control.discovery.sources import Health
from homing.core.config import parse

X = "/api/pools/p/replicas/x"


@pytest.fixture
async def service(service, homing_yaml):
    text = homing_yaml("10.0.0.1:80", "10.0.0.2:80").replace("  p:\n", "  p:\n    discovery: {api: true}\n")
    service.watch.membership.configure(parse(text, "homing.yaml"))
    return service


async def test_a_replica_registers_repeats_itself_and_leaves(service, client):
    body = {"address": "10.0.0.9:80", "ttl_s": 10}
    assert (await client.put(X, json=body)).json() == {"created": True, "changed": False, "believed": "api"}
    assert (await client.put(X, json=body)).json() == {"created": False, "changed": False, "believed": "api"}
    moved = body | {"address": "10.0.0.10:80"}
    assert (await client.put(X, json=moved)).json() == {"created": False, "changed": True, "believed": "api"}
    fleet = (await client.get("/api/fleet")).json()
    assert [r["id"] for r in fleet["pools"][0]["replicas"]] == ["r0", "r1", "x"]
    assert (await client.delete(X)).json() == {"was_registered": True}
    assert (await client.delete(X)).json() == {"was_registered": False}
    entries = (await client.get("/api/audit")).json()["entries"]
    assert [(e["what"], e["details"]) for e in entries] == [
        ("deregister", ""),
        ("register", "10.0.0.10:80 weight=1"),
        ("register", "10.0.0.9:80 weight=1"),
    ]


async def test_an_engine_that_speaks_tls_says_so_by_its_address(service, client):
    body = {"address": "https://gpu-x.internal:8443", "dp_size": 2}
    assert (await client.put(X, json=body)).json() == {"created": True, "changed": False, "believed": "api"}
    assert (await client.put(X, json=body)).json() == {"created": False, "changed": False, "believed": "api"}
    replicas = service.watch.membership.view.fleet.pools[0].replicas[2:]
    assert [(r.id, r.address, r.tls) for r in replicas] == [
        ("x-0", "gpu-x.internal:8443", "gpu-x.internal"),
        ("x-1", "gpu-x.internal:8443", "gpu-x.internal"),
    ]


async def test_the_file_wins_and_the_difference_is_shown(client):
    answer = await client.put("/api/pools/p/replicas/r0", json={"address": "10.0.0.9:80"})
    assert answer.json() == {"created": True, "changed": False, "believed": "file"}
    assert (await client.get("/api/sources")).json()["differences"] == [
        {
            "pool": "p",
            "replica": "r0",
            "believed": "file",
            "source": "api",
            "ours": "address 10.0.0.1:80, weight 1",
            "theirs": "address 10.0.0.9:80, weight 1",
        }
    ]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/pools/q/replicas/x", {"address": "10.0.0.9:80"}, 404),
        (X, {}, 422),
        (X, {"address": "http://10.0.0.9"}, 422),
        (X, {"address": "10.0.0.9:80", "weight": 0}, 422),
        (X, {"address": "10.0.0.9:80", "ttl_s": 0}, 422),
        (X, {"address": "10.0.0.9:80", "port": 1}, 422),
        ("/api/pools/p/replicas/-x", {"address": "10.0.0.9:80"}, 422),
    ],
)
async def test_what_is_no_registration_is_refused(client, path, body, status):
    assert (await client.put(path, json=body)).status_code == status


async def test_numbers_beyond_all_bounds_are_refused_in_words(client):
    answer = await client.put(
        X, content='{"address": "10.0.0.9:80", "weight": 1e400}', headers={"content-type": "application/json"}
    )
    (error,) = answer.json()["detail"]
    assert (answer.status_code, error["loc"]) == (422, ["body", "weight"])


async def test_a_pool_whose_file_does_not_allow_it_takes_none(service, client, homing_yaml):
    service.watch.membership.configure(parse(homing_yaml("10.0.0.1:80"), "homing.yaml"))
    answer = await client.put(X, json={"address": "10.0.0.9:80"})
    assert (answer.status_code, "discovery.api" in answer.json()["detail"]) == (403, True)


async def test_sources_are_shown_with_what_they_fail_at(service, client):
    service.sources.health["p", "dns"] = Health(2, answered=True, error="no route")
    assert (await client.get("/api/sources")).json()["sources"] == [
        {"pool": "p", "kind": "dns", "replicas": 2, "answered": True, "error": "no route", "doubted": False}
    ]
