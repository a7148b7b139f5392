"""The API in process, and that docs/api.md says what it does."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from homing.control.ads import AdsStream, DiscoveryRequested
from homing.control.ads_server import Stream
from homing.control.discovery.sources import Health
from homing.control.picker_metrics import Scraped, exposition
from homing.control.snapshot import CDS, EDS
from homing.control.templates.finding import Found
from homing.control.templates.prober import Progress, Target
from homing.core.fleet import HealthChanged, LengthTold, decode
from homing.core.template.record import Capabilities, Fate
from homing.core.template.source import ChatTemplate

DOCS = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


async def test_fleet_shows_state_and_health(service, client):
    service.watch.membership.apply(HealthChanged("p", "r0", True))
    service.watch.membership.apply(LengthTold("p", 4096))
    answer = (await client.get("/api/fleet")).json()
    assert answer["version"] == service.watch.membership.view.fleet.version
    assert answer["told"] == ""
    (pool,) = answer["pools"]
    assert {k: pool[k] for k in ("id", "served_name", "aliases", "hash", "max_model_len")} == {
        "max_model_len": 4096,
        "id": "p",
        "served_name": "p",
        "aliases": [],
        "hash": "ring",
    }
    assert pool["replicas"][0] == {
        "id": "r0",
        "address": "10.0.0.1:80",
        "weight": 1,
        "state": "ready",
        "healthy": True,
        "in_hash": True,
        "takes_new_sessions": True,
        "epoch": 0,
        "failing": False,
        "share": 1.0,
        "rank": None,
        "tls": "",
        "trouble": "",
    }
    assert pool["replicas"][1]["state"] == "joining"


async def test_templates_show_records_warnings_and_trouble(service, client):
    progress = service.watch.templates.progress
    assert (await client.get("/api/templates")).json() == []
    pool = service.watch.membership.view.config.pools[0]
    progress["p"] = Progress(Target.of(pool), trouble="no such file")
    (shown,) = (await client.get("/api/templates")).json()
    assert (shown["pool"], shown["source"], shown["trouble"], shown["record"]) == ("p", "none", "no such file", None)
    assert (await client.get("/api/templates/p")).status_code == 404
    text = ChatTemplate("{{ x }}", None, (("bos_token", "<s>"),))
    progress["p"] = Progress(Target.of(pool), Found(Capabilities(developer=Fate.DROPPED), text))
    (shown,) = (await client.get("/api/templates")).json()
    assert (shown["digest"], shown["record"]["developer"], shown["record"]["stable"], shown["warnings"]) == (
        text.digest, "dropped", True, ["developer messages vanish"],
    )  # fmt: skip
    assert set(shown["record"]) == set(Capabilities.__struct_fields__)
    answer = await client.get("/api/templates/p")
    assert msgspec.json.decode(answer.content, type=ChatTemplate) == text
    assert (await client.get("/api/templates/zzz")).status_code == 404


async def test_xds_before_the_first_snapshot_is_empty(client):
    assert (await client.get("/api/xds")).json() == {"snapshot": "", "resources": {}, "streams": []}


async def test_xds_shows_what_each_envoy_says_to_each_type(service, client):
    snapshot = service.snapshot
    service.ads.publish(snapshot)
    stream = Stream("ipv4:127.0.0.1:5", AdsStream(snapshot), 1)
    (sent,) = stream.machine.receive(DiscoveryRequested(EDS, resource_names=("a",)))
    stream.machine.receive(DiscoveryRequested(EDS, "", sent.nonce, ("a",), "malformed IP address"))
    service.ads._streams[1] = stream
    answer = (await client.get("/api/xds")).json()
    assert answer["snapshot"] == snapshot.version
    assert answer["resources"]["Cluster"] == {"version": snapshot.types[CDS].version, "names": ["a"]}
    assert answer["streams"] == [
        {
            "node": "",
            "cluster": "",
            "envoy_version": "",
            "peer": "ipv4:127.0.0.1:5",
            "delta": False,
            "pools": [],
            "answer": "nacked",
            "late": False,
            "types": {
                "ClusterLoadAssignment": {
                    "answer": "nacked",
                    "told": sent.version,
                    "accepted": "",
                    "error": "malformed IP address",
                    "wildcard": False,
                    "names": ["a"],
                }
            },
        }
    ]


async def test_feed_serves_the_fleet_that_was_told(service, client):
    fleet = service.watch.membership.view.fleet
    service.feed.publish(fleet)
    answer = await client.get("/api/feed", params={"picker": "p1"})
    assert (answer.status_code, answer.headers["etag"]) == (200, f'"{fleet.version}"')
    assert decode(answer.content) == fleet
    assert service.feed.pickers["p1"].have == ""


async def test_feed_without_news_is_204(service, client):
    fleet = service.watch.membership.view.fleet
    service.feed.publish(fleet)
    polling = asyncio.create_task(client.get("/api/feed", params={"picker": "p1", "have": fleet.version}))
    await asyncio.sleep(0.05)
    assert service.feed.pickers["p1"].have == fleet.version
    service.feed.close()
    answer = await polling
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("query", [{"picker": ""}, {"picker": "x" * 129}, {"have": "x" * 65}])
async def test_feed_refuses_odd_names(client, query):
    assert (await client.get("/api/feed", params=query)).status_code == 422


async def test_readiness_names_what_is_still_to_come(service, client):
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "waiting": ["the first rollout"]})
    service.still = ()
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "waiting": []})
    assert (await client.get("/healthz")).status_code == 200


async def test_metrics_are_prometheus_text(client):
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert 'homing_replicas{pool="p",state="joining"} 2.0' in answer.text
    assert "homing_config_good 1.0" in answer.text


async def test_the_page_of_the_api_needs_nothing_from_elsewhere(client):
    answer = await client.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<b>POST</b> /api/pools/{pool}/replicas/{replica}/drain" in answer.text
    assert "seconds until it leaves at the latest" in answer.text
    assert re.findall(r"<script|src=|https?://", answer.text) == []


async def test_openapi_documents_every_path(client):
    assert set((await client.get("/openapi.json")).json()["paths"]) == documented_paths()


def documented_paths():
    return set(re.findall(r"^\| `(?:GET|POST|PUT|DELETE) (\S+)` \|", DOCS, re.MULTILINE))


def documented_metrics():
    rows = re.findall(r"^\| `(homing_\w+)` \| ([^|]*)\|", DOCS, re.MULTILINE)
    return {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


async def test_docs_and_code_agree_on_metrics_and_their_labels(service):
    service.watch.prober.probes["p", True] += 1
    service.watch.discovery.failures["p"] += 1
    service.sources.health["p", "dns"] = Health(1, answered=True)
    text = exposition(service.registry, [Scraped("unix:/p", None)]).decode()
    exported = {}
    for name, labels in re.findall(r"^(homing_\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        exported[name] = frozenset(re.findall(r'(\w+)="', labels))
    assert exported == documented_metrics()
