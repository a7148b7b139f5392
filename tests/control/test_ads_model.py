"""Any sequence of requests and snapshots, against a small model of a client, ends with the newest snapshot there.

The model does what Envoy does: it derives its EDS and RDS subscriptions from clusters and listeners, rejects a
whole response for one bad resource, warms a changed cluster until a fresh EDS names it (and holds back its CDS
requests for as long), and after a reconnect tells the versions it has. Messages are in flight in both directions
and arrive in order, at any time.
"""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from homing.control.ads import AdsStream, DiscoveryRequested, Send, SnapshotPublished
from homing.control.snapshot import CDS, EDS, LDS, ORDER, RDS, Resources, Snapshot

BAD = b"bad"


@dataclass
class Client:
    """Holds resources by type; `warming` are clusters that wait for endpoints."""

    holds: dict = field(default_factory=lambda: {t: {} for t in ORDER})
    versions: dict = field(default_factory=lambda: dict.fromkeys(ORDER, ""))
    warming: set = field(default_factory=set)
    nonces: dict = field(default_factory=dict)
    asked: dict = field(default_factory=dict)
    outbox: deque = field(default_factory=deque)
    held_back: str | None = None  # a CDS request that waits for the warming to end: its error, or ""

    def connect(self):
        self.outbox.clear()
        self.held_back = None
        self.nonces, self.asked = dict.fromkeys(ORDER, ""), {}
        for type_url in (CDS, LDS):
            self._ask(type_url)
        self._follow_names()

    def names(self, type_url):
        if type_url == EDS:
            return tuple(sorted(self.holds[CDS]))
        if type_url == RDS:
            return tuple(sorted(route.decode() for route in self.holds[LDS].values()))
        return ()

    def receive(self, response):
        self.nonces[response.type_url] = response.nonce
        if response.type_url == CDS:
            self.held_back = None  # the request that answers this response takes its place
        new = dict(response.resources)
        if BAD in new.values():
            self._ask(response.type_url, error="bad resource")
            return
        self._apply(response.type_url, new)
        self.versions[response.type_url] = response.version
        self._ask(response.type_url)
        self._follow_names()

    def _apply(self, type_url, new):
        held = self.holds[type_url]
        if type_url == CDS:
            self.warming = {n for n in new if n in self.warming or held.get(n) != new[n]}
        if type_url in (CDS, LDS):
            self.holds[type_url] = new
        else:
            wanted = set(self.names(type_url))
            self.holds[type_url] = {n: b for n, b in (held | new).items() if n in wanted}
        if type_url == EDS:
            self.warming -= new.keys()
        if self.held_back is not None and not self.warming:
            self.held_back, error = None, self.held_back
            self._ask(CDS, error=error or None)

    def _follow_names(self):
        for type_url in (EDS, RDS):
            names = self.names(type_url)
            self.holds[type_url] = {n: b for n, b in self.holds[type_url].items() if n in names}
            if names != self.asked.get(type_url, ()):
                self._ask(type_url)

    def _ask(self, type_url, error=None):
        if type_url == CDS and self.warming and self.nonces[CDS]:
            self.held_back = error or ""
            return
        self.asked[type_url] = self.names(type_url)
        self.outbox.append(
            DiscoveryRequested(type_url, self.versions[type_url], self.nonces[type_url], self.asked[type_url], error)
        )


@dataclass
class Wire:
    client: Client
    snapshot: Snapshot
    stream: AdsStream = None
    inbox: deque = field(default_factory=deque)

    def reconnect(self):
        self.stream, self.inbox = AdsStream(self.snapshot), deque()
        self.client.connect()

    def publish(self, snapshot):
        self.snapshot = snapshot
        self._send(self.stream.receive(SnapshotPublished(snapshot)))

    def request_arrives(self):
        if self.client.outbox:
            self._send(self.stream.receive(self.client.outbox.popleft()))

    def response_arrives(self):
        if self.inbox:
            self.client.receive(self.inbox.popleft())

    def settle(self):
        """Delivers until nothing is in flight. More than 200 messages would be a loop of the two."""
        for _ in range(200):
            if not (self.client.outbox or self.inbox):
                return
            self.request_arrives()
            self.response_arrives()
        raise AssertionError("client and server never fall silent")

    def _send(self, outputs):
        self.inbox.extend(o for o in outputs if isinstance(o, Send))


def shots(content):
    pools = st.dictionaries(st.sampled_from("abc"), st.tuples(content, content), max_size=3)
    routes = st.sampled_from([b"r", b"s"])

    def made(pools, route, table):
        sets = {
            CDS: {n: c for n, (c, _) in pools.items()},
            EDS: {n: e for n, (_, e) in pools.items()},
            LDS: {"l": route},
            RDS: {route.decode(): table},
        }
        return Snapshot({t: Resources.of(r) for t, r in sets.items()})

    return st.builds(made, pools, routes, content)


good = st.sampled_from([b"1", b"2"])
steps = st.one_of(
    st.tuples(st.just("publish"), shots(st.sampled_from([b"1", b"2", BAD]))),
    st.tuples(st.sampled_from(["request", "response", "reconnect"]), st.none()),
)


@settings(max_examples=400, deadline=None)
@given(first=shots(good), script=st.lists(steps, max_size=40), last=shots(good))
def test_client_ends_with_the_newest_consistent_snapshot(first, script, last):
    wire = Wire(Client(), first)
    wire.reconnect()
    for kind, shot in script:
        match kind:
            case "publish":
                wire.publish(shot)
            case "request":
                wire.request_arrives()
            case "response":
                wire.response_arrives()
            case "reconnect":
                wire.reconnect()
    wire.publish(last)
    wire.settle()
    assert wire.client.holds == {t: dict(last.types[t].by_name) for t in ORDER}
    assert wire.client.warming == set()
    assert wire.stream.answer == "acked"


@settings(max_examples=100, deadline=None)
@given(shot=shots(good), other=shots(st.just(BAD)))
def test_rejected_snapshot_leaves_the_client_with_the_last_good_one(shot, other):
    wire = Wire(Client(), shot)
    wire.reconnect()
    wire.settle()
    listeners = dict(wire.client.holds[RDS])
    wire.publish(other)
    wire.settle()
    if other.types[LDS].version == shot.types[LDS].version:
        assert wire.client.holds[RDS] == listeners
    assert wire.stream.answer == "nacked"


@settings(max_examples=100, deadline=None)
@given(shot=shots(good))
def test_reconnecting_a_settled_client_costs_no_response(shot):
    wire = Wire(Client(), shot)
    wire.reconnect()
    wire.settle()
    wire.reconnect()
    while wire.client.outbox:
        wire.request_arrives()
    assert list(wire.inbox) == []
