"""What a picker says lives where."""

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from homing.core.chains import Chains
from homing.core.fleet import Fleet, Pool, Replica, State
from homing.core.placement.home import Placer
from homing.core.placement.load import Load
from homing.core.residents import Census, Residents
from homing.core.session import Homes
from homing.ext_proc import http, residents
from homing.ext_proc.events import RequestHeadersReceived
from homing.ext_proc.metrics import Ttft
from homing.ext_proc.picker import Picker
from homing.ext_proc.routed import RoutedRequest

TWINS = (Replica("a", "10.0.0.1:80"), Replica("b", "10.0.0.2:80", state=State.DRAINING))
FLEET = Fleet((Pool("p", "p", replicas=TWINS), Pool("q", "q", replicas=TWINS)))


class Picking:
    """A picker on a clock of the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.registry = CollectorRegistry()
        placer = Placer(Homes(100.0, 1000), Chains(100.0, 1000), Load(), b"secret", lambda n: 0)
        self.picker = Picker(placer, lambda: self.now, Ttft(self.registry))
        self.picker.adopt(FLEET)

    def route(self, session: bytes, model: str) -> RoutedRequest:
        headers = {"x-session-id": session, "x-homing-key": b"/" + session, "x-homing-given": session}
        return self.picker.route(RequestHeadersReceived(headers, model))


@pytest.fixture
def picking() -> Picking:
    return Picking()


async def held(picking: Picking) -> dict[tuple[str, str], tuple[int, int]]:
    census = await residents.census(picking.picker, picking.now)
    return {(r.pool, r.replica): (r.sessions, r.streams) for r in census.replicas}


async def test_sessions_and_streams_are_counted_where_they_are(picking: Picking):
    routed = [picking.route(b"s%d" % i, model="p") for i in range(3)]
    picking.route(b"s0", model="q")
    assert await held(picking) == {("p", "a"): (3, 3), ("p", "b"): (0, 0), ("q", "a"): (1, 1), ("q", "b"): (0, 0)}
    for request in routed:
        request.release()
    assert (await held(picking))["p", "a"] == (3, 0)


async def test_sessions_that_were_idle_for_too_long_are_not_counted(picking: Picking):
    picking.route(b"s", model="p").release()
    picking.now = 100.0
    assert (await held(picking))["p", "a"] == (0, 0)


async def test_many_sessions_are_counted_whole(picking: Picking, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(residents, "BATCH", 7)
    for i in range(100):
        picking.route(b"s%d" % i, model="p").release()
    assert (await held(picking))["p", "a"] == (100, 0)


async def test_it_is_asked_for_by_http(picking: Picking):
    app = http.app(picking.registry, lambda: None, residents.routes(picking.picker, lambda: picking.now))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://picker") as client:
        answer = await client.get("/replicas")
        assert (await client.get("/healthz")).status_code == 200
    census = msgspec.json.decode(answer.content, type=Census)
    assert (census.fleet, census.shared) == (FLEET.version, False)
    assert census.replicas[1] == Residents("p", "b", State.DRAINING, 0, 0)
