"""The page at `/`: fleet, templates and Envoys, safe to show whatever their names are."""

from __future__ import annotations

from homing.control.ads import AdsStream, DiscoveryRequested
from homing.control.ads_server import Stream
from homing.control.reload import Refused
from homing.control.snapshot import EDS
from homing.control.templates.finding import Found
from homing.control.templates.prober import Progress, Target
from homing.core.fleet import HealthChanged
from homing.core.template.record import Capabilities, Fate


async def shown(client) -> str:
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    return answer.text


async def test_replicas_are_listed_with_their_state(service, client):
    service.watch.membership.apply(HealthChanged("p", "r0", True))
    html = await shown(client)
    assert '<tr><td>r0<td>10.0.0.1:80<td>1<td>ready<td class="good">answers</tr>' in html
    assert '<td>joining<td class="bad">does not answer</tr>' in html
    assert "Not ready: waiting for" in html
    assert "None is connected." in html


async def test_why_a_replica_is_not_fit_is_said_where_it_is_known(service, client):
    service.unfit["p", "r1"] = "it does not serve the model <m>"
    html = await shown(client)
    assert '<td class="bad">it does not serve the model &lt;m&gt;</tr>' in html
    (pool,) = (await client.get("/api/fleet")).json()["pools"]
    assert [r["trouble"] for r in pool["replicas"]] == ["", "it does not serve the model <m>"]


async def test_a_file_that_is_refused_is_said_with_the_reason(service, client):
    assert "The file is refused" not in await shown(client)
    service.watch.reloader.refused = Refused("homing.yaml:3: <b>: found an unknown key", 1000.0)
    assert "the one before is used: homing.yaml:3: &lt;b&gt;: found an unknown key" in await shown(client)


async def test_a_template_is_told_in_plain_words(service, client):
    pool = service.watch.membership.view.config.pools[0]
    progress = service.watch.templates.progress
    progress["p"] = Progress(Target.of(pool), trouble="<b>odd</b>")
    assert "&lt;b&gt;odd&lt;/b&gt;" in await shown(client)
    progress["p"] = Progress(Target.of(pool), Found(Capabilities(), None))
    assert "takes every message as it is" in await shown(client)
    progress["p"] = Progress(Target.of(pool), Found(Capabilities(system=Fate.MOVES), None))
    html = await shown(client)
    assert "takes every message as it is" not in html
    assert "<tr><td>system<td>moves</tr>" in html


async def test_what_an_envoy_refuses_is_said_in_its_words(service, client):
    service.ads.publish(service.snapshot)
    stream = Stream("ipv4:127.0.0.1:5", AdsStream(service.snapshot), 1)
    (sent,) = stream.machine.receive(DiscoveryRequested(EDS, resource_names=("a",)))
    stream.machine.receive(DiscoveryRequested(EDS, "", sent.nonce, ("a",), "malformed <IP> address"))
    service.ads._streams[1] = stream
    html = await shown(client)
    assert '<td class="bad">nacked</tr>' in html
    assert "refuses ClusterLoadAssignment: malformed &lt;IP&gt; address" in html
